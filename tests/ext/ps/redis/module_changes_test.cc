// HET.CHANGES at a real server: what only a server has. What the pages hold: store/changes_test.cc.

#include "het_tf/core/store/changes.h"
#include "tests/testing/redis/redis_store.h"

namespace het::testing {
namespace {

// The answer of HET.CHANGES.
struct Answer {
  std::string position, cursor, kind;
  size_t rows = 0, removed = 0, keys = 0;
};

Answer Parse(const RedisReply& reply) {
  Answer answer;
  EXPECT_GE(reply.elements.size(), 3u) << reply.text;
  if (reply.elements.size() < 3) return answer;
  answer.position = reply.elements[0].text;
  answer.cursor = reply.elements[1].text;
  answer.kind = reply.elements[2].text;
  for (size_t i = 3; i < reply.elements.size(); ++i) {
    ChangedRows rows;
    EXPECT_TRUE(DecodeChanges(View(reply.elements[i].text), &rows).ok());
    (rows.what == ChangedRows::kValues    ? answer.rows
     : rows.what == ChangedRows::kRemoved ? answer.removed
                                          : answer.keys) += rows.keys.size();
  }
  return answer;
}

class RedisChangesTest : public RedisTest {
 protected:
  Answer Changes(const std::string& since, RedisServer::Arguments more = {}, RedisServer* server = nullptr) {
    more.insert(more.begin(), {"HET.CHANGES", "p", "SINCE", since});
    return Parse(server == nullptr ? Command(more) : server->Command(more));
  }
  std::string Refusal(RedisServer::Arguments words) {
    words.insert(words.begin(), {"HET.CHANGES", "p"});
    const RedisReply reply = Command(words);
    EXPECT_TRUE(reply.StartsWith("HETERR ")) << reply.text;
    return reply.text;
  }
  // Removes the first rows of table "a".
  void Remove(size_t count) {
    std::vector<Key> keys;
    for (const auto& [id, row] : ServerRows(&server())) {
      if (id.first == HashName("a") && keys.size() < count) keys.push_back(id.second);
    }
    ASSERT_EQ(keys.size(), count);
    Bytes chunk;
    EncodeRemove(*TableSchema::Create(MakeSpec("a", 3)).value(), keys, &chunk);
    EXPECT_FALSE(Command({"HET.LOAD", "p", ToText(chunk)}).error());
  }
};

TEST_F(RedisChangesTest, AnswersChangesByPages) {
  Start();
  store().Push(20);
  const Answer whole = Changes("0:0");
  EXPECT_EQ(whole.kind, "whole");
  EXPECT_EQ(whole.cursor, "0");
  EXPECT_EQ(whole.rows, store().ModelRows().size());
  EXPECT_EQ(whole.position, server().Stat("incarnation") + ":" + server().Stat("changes"));
  EXPECT_EQ(Changes(whole.position).rows, 0u);
  store().Push(1);
  std::string cursor = "0";
  size_t rows = 0, pages = 0;
  do {
    const Answer page = Changes(whole.position, {"CURSOR", cursor, "MAXBYTES", "1"});
    EXPECT_EQ(page.kind, "changes");
    EXPECT_LE(page.rows, 1u);
    rows += page.rows;
    cursor = page.cursor;
  } while (cursor != "0" && ++pages < 100);
  EXPECT_EQ(rows, 10u) << "five of each table";
  const std::string id = std::to_string(HashName("a"));
  EXPECT_EQ(Changes(whole.position, {"TABLE", id}).rows, 5u);
  EXPECT_EQ(Changes(whole.position, {"TABLE", id, "ROWS", "int8"}).rows, 5u);
  EXPECT_GE(server().Info("het", "het_changes_pages"), 12);
  EXPECT_GT(server().Info("het", "het_changes_bytes"), 500);
}

TEST_F(RedisChangesTest, RemembersAsManyRemovalsAsItsSettingSays) {
  Start({"--het.max-tombstones", "2"});
  store().set_keys(3);
  store().Push(3);
  const std::string since = Changes("0:0").position;
  Remove(2);
  EXPECT_EQ(Changes(since).removed, 2u);
  Remove(1);
  const Answer keys = Changes(since);
  EXPECT_EQ(keys.kind, "keys");
  EXPECT_EQ(keys.keys, ServerRows(&server()).size());
  EXPECT_EQ(keys.rows, 0u) << "keys are enough for the rows that did not change";
  ASSERT_TRUE(Command({"CONFIG", "SET", "het.max-tombstones", "0"}).ok());
  EXPECT_EQ(Changes(keys.position).kind, "changes") << "nothing was removed since";
}

TEST_F(RedisChangesTest, BadOptionsAreNamed) {
  Start();
  EXPECT_NE(Refusal({"TABLE", "1"}).find("needs SINCE"), std::string::npos);
  EXPECT_NE(Refusal({"SINCE", "7"}).find("SINCE is '7'"), std::string::npos);
  EXPECT_NE(Refusal({"SINCE", "0:0", "CURSOR", "x"}).find("CURSOR is 'x'"), std::string::npos);
  EXPECT_NE(Refusal({"SINCE", "0:0", "MAXBYTES", "0"}).find("MAXBYTES is '0'"), std::string::npos);
  EXPECT_NE(Refusal({"SINCE", "0:0", "ROWS", "int7"}).find("ROWS is 'int7'"), std::string::npos);
  EXPECT_NE(Refusal({"SINCE", "0:0", "ROWS", "int8", "STORED"}).find("STORED rows are float32"),
            std::string::npos);
  EXPECT_NE(Refusal({"SINCE", "0:0", "TABLE", "-1"}).find("TABLE is '-1'"), std::string::npos);
  EXPECT_NE(Refusal({"SINCE", "0:0", "COUNT"}).find("COUNT needs TABLE"), std::string::npos);
  EXPECT_NE(Refusal({"SINCE", "0:0", "PAGES", "1"}).find("'PAGES' is not an option"), std::string::npos);
  EXPECT_NE(Refusal({"SINCE"}).find("'SINCE' is not an option, or has no value"), std::string::npos);
  EXPECT_TRUE(Command({"HET.CHANGES", "none", "SINCE", "0:0"}).StartsWith("HETNOPART "));
}

// A reader dates rows by its question; only the primary knows that there was nothing newer.
TEST_F(RedisChangesTest, ReplicasRefuseUntilTheyArePromoted) {
  StartPrimary();
  store().Push(5);
  const std::string since = Changes("0:0").position;
  RedisServer& replica = AddReplica();
  const RedisReply refused = replica.Command({"HET.CHANGES", "p", "SINCE", "0:0"});
  EXPECT_NE(refused.text.find("this server is a replica"), std::string::npos) << refused.text;
  ASSERT_TRUE(replica.Command({"REPLICAOF", "NO", "ONE"}).ok());
  const Answer promoted = Changes(since, {}, &replica);
  EXPECT_EQ(promoted.kind, "whole");
  EXPECT_EQ(promoted.rows, store().ModelRows().size());
}

TEST_F(RedisChangesTest, ALoadIsWaitedFor) {
  Start();
  store().Push(3);
  ASSERT_FALSE(Command({"HET.TABLE", "p", "BEGIN", "me"}).error());
  EXPECT_TRUE(Command({"HET.CHANGES", "p", "SINCE", "0:0"}).StartsWith("LOADING "));
  ASSERT_FALSE(Command({"HET.TABLE", "p", "COMMIT", "me"}).error());
  EXPECT_EQ(Changes("0:0").kind, "whole");
}

}  // namespace
}  // namespace het::testing
