// Limits on a real server's use: answers, tables, marks of loads. store/partition_test.cc tests
// each rule separately.
#include <gmock/gmock.h>

#include <fstream>
#include <set>

#include "het_tf/core/store/chunk_format.h"
#include "het_tf/ext/ps/keyspace.h"
#include "tests/testing/redis/redis_store.h"
#include "tests/testing/requests.h"

namespace het::testing {
namespace {

using ::testing::HasSubstr;

class RedisLimits : public RedisTest {
 protected:
  using Arguments = RedisServer::Arguments;

  static std::string Spec(const std::string& name, uint32_t dim = 2) {
    return TableSchema::Create(MakeSpec(name, dim, "sgd")).value()->ToJson();
  }
  // A read of `rows` rows of the table "wide".
  Reply ReadWide(Key rows) {
    Request q = store().NewRequest(0, 0, 0);
    q.tables.resize(1);
    q.tables[0].table = HashName("wide");
    q.tables[0].epoch = 5;
    for (Key key = 0; key < rows; ++key) q.tables[0].fetch_keys.push_back(key);
    return Decoded(Command({"HET.READ", "p", Encoded(q)}));
  }
};

TEST_F(RedisLimits, Answers) {
  Start();
  ASSERT_EQ(Command({"HET.TABLE", "p", "ADD", Spec("wide", 65536), "5"}).text, "5");
  EXPECT_EQ(ReadWide(255).status, FrameStatus::kOk);
  const Reply refused = ReadWide(256);
  EXPECT_EQ(refused.status, FrameStatus::kBadFrame);
  EXPECT_THAT(refused.message,
              HasSubstr("takes 67112704 bytes, and here it may take 67108864; ask for fewer"));
  EXPECT_THAT(refused.message, HasSubstr("raise het.max-reply-bytes"));
  ASSERT_TRUE(Command({"CONFIG", "SET", "het.max-reply-bytes", "128mb"}).ok());
  EXPECT_EQ(ReadWide(256).status, FrameStatus::kOk);
  EXPECT_TRUE(Command({"CONFIG", "SET", "het.max-reply-bytes", "1mb"}).error()) << "clients ask for 16 MB";
  Request twice = store().NewRequest(0);
  twice.tables[0].check_keys = {twice.tables[0].fetch_keys[0]};
  twice.tables[0].check_clocks = {1};
  EXPECT_THAT(Decoded(Command({"HET.READ", "p", Encoded(twice)})).message, HasSubstr("comes twice"));
}

// The limit holds for all parts of a frame together.
TEST_F(RedisLimits, AnswersOfAFrame) {
  Start();
  constexpr uint32_t kParts = 4;
  const std::vector<std::string> names = PartitionKeys("n", kParts);
  const Schema schema = TableSchema::Create(MakeSpec("wide", 65536, "sgd")).value();
  const std::vector<het::Key> keys = Range(0, 100);
  const std::vector<float> rows(keys.size() * schema->dim(), 1);
  Bytes set;
  EncodeSet(*schema, keys, rows.data(), &set);
  std::vector<Request> parts;
  for (uint32_t p = 0; p < kParts; ++p) {
    ASSERT_TRUE(Command({"HET.TABLE", names[p], "CREATE", std::to_string(p), "4", "9"}).ok());
    ASSERT_EQ(Command({"HET.TABLE", names[p], "ADD", schema->ToJson(), "5"}).text, "5");
    ASSERT_EQ(Command({"HET.LOAD", names[p], ToText(set)}).integer, 100);
    parts.push_back(RequestOf({p, kParts, 9}, {1, 2}));
    AddTable(&parts.back(), *schema, 5).fetch_keys.assign(keys.begin(), keys.end());
  }
  Bytes frame;
  EncodeParts(parts, &frame);
  const RedisReply answer = Command({"HET.READ", names[0], ToText(frame)});
  EXPECT_LT(answer.text.size(), size_t{64} << 20);
  ReplyParts replies;
  ASSERT_TRUE(replies.Open(View(answer.text)).ok());
  std::vector<FrameStatus> came;
  for (Reply reply; !replies.done(); came.push_back(reply.status)) ASSERT_TRUE(replies.Next(&reply).ok());
  EXPECT_EQ(came, std::vector<FrameStatus>(
                      {FrameStatus::kOk, FrameStatus::kOk, FrameStatus::kBadFrame, FrameStatus::kBadFrame}));
}

TEST_F(RedisLimits, Tables) {
  Start({"--het.max-tables", "3", "--appendonly", "yes", "--appendfsync", "always"});
  ASSERT_EQ(Command({"HET.TABLE", "p", "ADD", Spec("c"), "5"}).text, "5");
  const RedisReply refused = Command({"HET.TABLE", "p", "ADD", Spec("d"), "5"});
  EXPECT_THAT(refused.text,
              HasSubstr("HETERR table 'd' is one too many: a partition has at most 3 tables; drop "
                        "some, or raise het.max-tables"));
  Bytes chunk;
  EncodeFloor(*TableSchema::Create(MakeSpec("d", 2, "sgd")).value(), 1, &chunk);
  EXPECT_THAT(Command({"HET.LOAD", "p", ToText(chunk)}).text, HasSubstr("one too many"));
  EXPECT_EQ(Command({"HET.TABLE", "p", "ADD", Spec("c"), "6"}).text, "5") << "it is there";
  ASSERT_TRUE(Command({"CONFIG", "SET", "het.max-tables", "5"}).ok());
  ASSERT_EQ(Command({"HET.TABLE", "p", "ADD", Spec("d"), "5"}).text, "5");
  ASSERT_EQ(Command({"HET.TABLE", "p", "ADD", Spec("e"), "5"}).text, "5");
  server().Restart();
  EXPECT_EQ(server().Tables().size(), 5u) << "accepted tables are loaded again";
  EXPECT_THAT(Command({"HET.TABLE", "p", "ADD", Spec("f"), "5"}).text, HasSubstr("at most 3 tables"));
}

TEST_F(RedisLimits, TablesAreListedInPages) {
  Start();
  for (int i = 0; i < 248; ++i) Command({"HET.TABLE", "p", "ADD", Spec("t" + std::to_string(i)), "5"});
  std::set<std::string> names;
  std::vector<size_t> pages;
  std::string cursor = "0";
  do {
    const RedisReply page = Command({"HET.STAT", "p", "TABLES", cursor});
    ASSERT_EQ(page.elements.size(), 2u) << page.text;
    cursor = page.elements[0].text;
    pages.push_back(page.elements[1].elements.size());
    for (const RedisReply& table : page.elements[1].elements) names.insert(table.elements.at(0).text);
  } while (cursor != "0");
  EXPECT_EQ(pages, std::vector<size_t>({100, 100, 50}));
  EXPECT_EQ(names.size(), 250u);
  const RedisReply one = Command({"HET.STAT", "p", "TABLES", std::to_string(HashName("t7")), "COUNT", "1"});
  ASSERT_EQ(one.elements.at(1).elements.size(), 1u);
  EXPECT_EQ(one.elements[1].elements[0].elements.at(0).text, "t7");
  EXPECT_THAT(Command({"HET.STAT", "p", "TABLES", "x"}).text, HasSubstr("cursor 'x' is invalid; begin"));
  EXPECT_THAT(Command({"HET.STAT", "p", "TABLES", "0", "COUNT", "0"}).text, HasSubstr("COUNT is '0'"));
  EXPECT_THAT(Command({"HET.STAT", "p", "TABLES", "0", "ROWS", "1"}).text,
              HasSubstr("'ROWS'; there is COUNT"));
}

TEST_F(RedisLimits, MarkOfALoadExpiresWithinADay) {
  Start();
  const std::string read = Encoded(store().NewRequest(0));
  Bytes mark;
  Writer w = chunk::Begin(chunk::Kind::kLoading, &mark);  // a mark until 2106
  w.Fixed(uint32_t{5});
  w.Fixed(UINT32_MAX);
  w.Raw("job", 3);
  EXPECT_FALSE(Command({"HET.LOAD", "p", ToText(mark)}).error());
  EXPECT_EQ(Decoded(Command({"HET.READ", "p", read})).status, FrameStatus::kOk);
  const RedisReply late = Command({"HET.TABLE", "p", "BEGIN", "job", "60", "4000000000"});
  EXPECT_THAT(late.text, HasSubstr("since is '4000000000'; only replication may give it"));
}

// Written by a server without limits.
TEST_F(RedisLimits, LoadsALogWithClocksOutOfRange) {
  Start(RedisServer::Logged());
  store().Push(3);
  const RedisReply page = Command({"HET.SCAN", "p", std::to_string(HashName("b")) + ":0", "COUNT", "1"});
  std::string chunk = page.elements.at(1).text;
  const Clock late = INT64_MAX;
  std::memcpy(chunk.data() + 24 + sizeof(het::Key), &late, sizeof(late));  // of its first row
  server().Kill();
  std::ofstream(server().LogPath(".incr."), std::ios::binary | std::ios::app)
      << "*3\r\n$8\r\nHET.LOAD\r\n$1\r\np\r\n$" << chunk.size() << "\r\n"
      << chunk << "\r\n";
  ASSERT_TRUE(server().Start()) << server().Log();
  EXPECT_THAT(server().Log(), HasSubstr("p has 1 clocks out of range. They were set to the maximum"));
}

}  // namespace
}  // namespace het::testing
