// A frame with several parts at a real server: each partition handles the part for its key.
#include "het_tf/ext/ps/keyspace.h"
#include "tests/testing/redis/redis_store.h"
#include "tests/testing/requests.h"

namespace het::testing {
namespace {

class RedisParts : public RedisTest {
 protected:
  static constexpr uint32_t kParts = 4;
  static constexpr uint64_t kEpoch = 77;

  void Begin(const RedisServer::Arguments& options = {}) {
    Start(options);
    schema_ = TableSchema::Create(MakeSpec("t", 2, "sgd")).value();
    for (uint32_t p = 0; p < kParts; ++p) {
      ASSERT_TRUE(
          Command({"HET.TABLE", keys_[p], "CREATE", std::to_string(p), std::to_string(kParts), "9"}).ok());
      Command({"HET.TABLE", keys_[p], "ADD", schema_->ToJson(), std::to_string(kEpoch)});
    }
  }
  std::string Frame(uint64_t seq, uint32_t first = 0) {
    std::vector<Request> all;
    for (uint32_t p = first; p < kParts; ++p) {
      TableRequest& t = AddTable(&all.emplace_back(RequestOf({p, kParts, 9}, {1, 2}, seq)), *schema_, kEpoch);
      t.fetch_keys = {5};
      if (seq != 0) AddPush(&t, t.fetch_keys);
    }
    Bytes bytes;
    EncodeParts(all, &bytes);
    return ToText(bytes);
  }
  std::vector<Reply> Ask(const std::string& command, const std::string& key, const std::string& frame) {
    const RedisReply answer = Command({command, key, frame});
    EXPECT_FALSE(answer.error()) << answer.text;
    ReplyParts parts;
    EXPECT_TRUE(parts.Open(View(answer.text)).ok()) << answer.text;
    std::vector<Reply> replies;
    while (!parts.done()) {
      if (!parts.Next(&replies.emplace_back()).ok()) break;
    }
    return replies;
  }
  std::vector<Clock> Clocks() {
    std::vector<Clock> clocks;
    for (const Reply& reply : Ask("HET.READ", keys_[0], Frame(0))) {
      EXPECT_EQ(reply.status, FrameStatus::kOk) << reply.message;
      clocks.push_back(reply.tables.at(0).fetched_clocks.at(0));
    }
    return clocks;
  }

  const std::vector<std::string> keys_ = PartitionKeys("space", kParts);
  Schema schema_;
};

TEST_F(RedisParts, EveryPartIsAppliedAndLoggedAtItsKey) {
  Begin(RedisServer::Logged());
  for (uint64_t seq = 1; seq <= 3; ++seq) {
    const auto replies = Ask("HET.STEP", keys_[0], Frame(seq));
    ASSERT_EQ(replies.size(), kParts);
    for (const Reply& reply : replies) {
      EXPECT_EQ(reply.status, FrameStatus::kOk) << reply.message;
      EXPECT_TRUE(reply.same_seq);
    }
  }
  EXPECT_EQ(server().Info("het", "het_pushes_applied"), 12);
  EXPECT_EQ(Clocks(), std::vector<Clock>({3, 3, 3, 3}));
  server().Restart();
  EXPECT_EQ(Clocks(), std::vector<Clock>({3, 3, 3, 3}));
  EXPECT_TRUE(Command({"HET.READ", keys_[0], Frame(4)}).StartsWith("HETERR the frame has a push part"));
}

TEST_F(RedisParts, MissingAndLoadingPartitionsInOneFrame) {
  Begin();
  Ask("HET.STEP", keys_[0], Frame(1));
  Command({"DEL", keys_[2]});
  ASSERT_FALSE(Command({"HET.TABLE", keys_[1], "BEGIN", "somebody", "60"}).error());
  const auto replies = Ask("HET.STEP", keys_[0], Frame(2));
  ASSERT_EQ(replies.size(), kParts);
  EXPECT_EQ(replies[0].status, FrameStatus::kOk);
  EXPECT_EQ(replies[1].status, FrameStatus::kBusy);
  EXPECT_EQ(replies[1].message.rfind("LOADING " + keys_[1] + " is being loaded by somebody", 0), 0u)
      << replies[1].message;
  EXPECT_EQ(replies[2].status, FrameStatus::kElsewhere);
  EXPECT_EQ(replies[3].status, FrameStatus::kOk);
  EXPECT_EQ(server().Info("het", "het_refused_elsewhere"), 1);
  EXPECT_EQ(server().Info("het", "het_refused_loading"), 1);
  EXPECT_EQ(Command({"EXISTS", keys_[2]}).integer, 0) << "a request does not make it";
}

// The command's key must be the first part's, or that part is refused; an unrelated key finds no partition.
TEST_F(RedisParts, KeysThatDoNotFit) {
  Begin();
  auto replies = Ask("HET.STEP", keys_[1], Frame(1));
  ASSERT_EQ(replies.size(), kParts);
  EXPECT_EQ(replies[0].status, FrameStatus::kWrongPartition);
  EXPECT_EQ(replies[3].status, FrameStatus::kOk);
  replies = Ask("HET.STEP", "p", Frame(1));
  for (const Reply& reply : replies) EXPECT_NE(reply.status, FrameStatus::kOk);
  EXPECT_EQ(Clocks(), std::vector<Clock>({0, 1, 1, 1}));
}

// A user with a right to the command's key must not reach other keys through it.
TEST_F(RedisParts, AclAppliesToEveryKeyOfAFrame) {
  Begin();
  const auto as = [&](const std::vector<std::string>& patterns) {
    RedisServer::Arguments setuser = {"ACL", "SETUSER",   "u",         "reset", "on",
                                      ">x",  "+het.step", "+het.read", "+auth"};
    setuser.insert(setuser.end(), patterns.begin(), patterns.end());
    ASSERT_TRUE(Command({"AUTH", "default", ""}).ok());
    ASSERT_TRUE(Command(setuser).ok());
    ASSERT_TRUE(Command({"AUTH", "u", "x"}).ok());
  };
  using S = FrameStatus;
  const auto statuses = [](const std::vector<Reply>& replies) {
    std::vector<S> all;
    for (const Reply& reply : replies) all.push_back(reply.status);
    return all;
  };
  as({"~" + keys_[0], "%R~" + keys_[2]});
  EXPECT_EQ(statuses(Ask("HET.STEP", keys_[0], Frame(1))),
            (std::vector<S>{S::kOk, S::kElsewhere, S::kElsewhere, S::kElsewhere}))
      << "a right to read a key is not a right to push";
  as({"~" + keys_[0], "~" + keys_[2]});
  const std::vector<S> some = {S::kOk, S::kElsewhere, S::kOk, S::kElsewhere};
  EXPECT_EQ(statuses(Ask("HET.STEP", keys_[0], Frame(1))), some);
  EXPECT_EQ(statuses(Ask("HET.READ", keys_[0], Frame(0))), some);
  EXPECT_TRUE(Command({"HET.READ", keys_[1], Frame(0, 1)}).StartsWith("NOPERM"))
      << "a frame's only part gets the reason";
  as({"~het:space:*"});
  EXPECT_EQ(statuses(Ask("HET.STEP", keys_[0], Frame(2))),
            (std::vector<S>{S::kOk, S::kGap, S::kOk, S::kGap}));
  ASSERT_TRUE(Command({"AUTH", "default", ""}).ok());
  EXPECT_EQ(Clocks(), std::vector<Clock>({2, 0, 2, 0}));
}

// In a script the caller is unknown: only the first part is done.
TEST_F(RedisParts, AScriptAndATransaction) {
  Begin();
  const RedisReply script =
      Command({"EVAL", "return redis.call('HET.STEP', KEYS[1], ARGV[1])", "1", keys_[0], Frame(1)});
  ReplyParts parts;
  ASSERT_TRUE(parts.Open(View(script.text)).ok()) << script.text;
  std::vector<Reply> replies(kParts);
  for (Reply& reply : replies) ASSERT_TRUE(parts.Next(&reply).ok());
  EXPECT_EQ(replies[0].status, FrameStatus::kOk);
  EXPECT_EQ(replies[1].status, FrameStatus::kElsewhere);
  EXPECT_EQ(Clocks(), std::vector<Clock>({1, 0, 0, 0}));
  ASSERT_TRUE(Command({"MULTI"}).ok());
  Command({"HET.STEP", keys_[0], Frame(1)});
  const RedisReply done = Command({"EXEC"});
  ASSERT_EQ(done.elements.size(), 1u) << done.text;
  EXPECT_EQ(Clocks(), std::vector<Clock>({1, 1, 1, 1}));
}

// The namespace has no partition with such a number; the key without a number is not one either.
TEST_F(RedisParts, PartitionNumbersOutOfRange) {
  Begin();
  Command({"HET.TABLE", "", "CREATE", "7", "8", "9"});
  Command({"HET.TABLE", "", "ADD", schema_->ToJson(), std::to_string(kEpoch)});
  std::vector<Request> all(2);
  for (Request& q : all) {
    q.partition = {0, 4, 9};
    q.client = {1, 2};
  }
  all[1].partition.index = 7;
  Bytes bytes;
  EncodeParts(all, &bytes);
  const auto replies = Ask("HET.READ", keys_[0], ToText(bytes));
  ASSERT_EQ(replies.size(), 2u);
  EXPECT_EQ(replies[0].status, FrameStatus::kOk) << replies[0].message;
  EXPECT_EQ(replies[1].status, FrameStatus::kElsewhere) << replies[1].message;
}

// A server without memory forgets its clients' subscriptions first.
TEST_F(RedisParts, SubscriptionsNeedMemory) {
  Begin();
  Request q = RequestOf({0, kParts, 9}, {1, 2});
  TableRequest& asks = AddTable(&q, *schema_, kEpoch);
  asks.bound = 1;
  asks.subscribe = true;
  for (het::Key key = 0; key < 1000; ++key) asks.fetch_keys.push_back(key);
  const auto ask = [&] {
    ++q.request_id;
    Bytes bytes;
    Encode(q, &bytes);
    const Reply reply = Ask("HET.READ", keys_[0], ToText(bytes)).at(0);
    EXPECT_EQ(reply.status, FrameStatus::kOk) << reply.message;
    EXPECT_EQ(reply.tables.at(0).fetched_clocks.size(), 1000u);
    return reply;
  };
  EXPECT_NE(ask().notified, 0u);
  EXPECT_EQ(server().Info("het", "het_subscribed_rows"), 1000);
  ASSERT_TRUE(Command({"CONFIG", "SET", "maxmemory", "1"}).ok());
  const Reply full = ask();
  EXPECT_EQ(full.notified, 0u);
  EXPECT_TRUE(full.subscription_reset);
  EXPECT_EQ(server().Info("het", "het_subscribed_rows"), 0);
  ASSERT_TRUE(Command({"CONFIG", "SET", "maxmemory", "0"}).ok());
  EXPECT_NE(ask().notified, 0u);
}

}  // namespace
}  // namespace het::testing
