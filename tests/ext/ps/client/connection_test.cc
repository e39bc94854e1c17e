// Commands and replies on one connection, against a server that the test controls.
#include "het_tf/ext/ps/client/redis_store.h"
#include "tests/ext/ps/client/transport_fixture.h"
#include "tests/testing/random.h"

namespace het::testing {
namespace {

using ConnectionTest = TransportTest;

// A table is dropped at all partitions of a server at once, even if another worker has dropped some.
TEST_F(ConnectionTest, ATableIsDroppedEverywhereAtOnce) {
  constexpr size_t kMany = 64;
  FakeServer server(&service_);
  std::vector<std::string> dropped;
  server.SetScript([&](const FakeServer::Command& command) -> std::string {
    if (command.words[0] == "HSETNX") return ":0";
    if (command.words[0] == "HET.STAT") return "*0";
    if (command.words[0] == "HGET" && command.words[2] == "made")
      return "$1\r\n" + std::to_string(Layout::kRule);
    if (command.words[0] == "HGET") return "$2\r\n" + std::to_string(kMany);
    if (command.words[0] != "HET.TABLE") return "";
    if (command.words[2] == "DROP") dropped.push_back(command.words[1]);
    return command.words[2] == "DROP" && dropped.size() % 5 == 0 ? "-HETERR no table 't' at p; ..." : "+OK";
  });
  auto store = RedisStore::Open(server.address(), "", 5, nullptr);
  ASSERT_TRUE(store.ok()) << store.status().message();
  const int reads = server.reads.load();
  const Status status = store.value()->DropTable(*schema_);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_LT(server.reads.load() - reads, static_cast<int>(kMany) / 4) << "they were pipelined";
  EXPECT_EQ(dropped, store.value()->keys()) << "each once";
}

// Replies without a request must not be taken for later ones.
TEST_F(ConnectionTest, MoreAnswersThanQuestions) {
  FakeServer server(&service_);
  RedisCluster cluster(server.address());
  ASSERT_TRUE(cluster.Refresh(5).ok());
  std::atomic<int> asked{0};
  server.SetScript([&](const FakeServer::Command& command) -> std::string {
    if (command.words[0] != "HET.STAT") return "";
    std::string answer = ":1";
    if (++asked <= 2) {
      for (int i = 0; i < 1000; ++i) answer += "\r\n:2";
    }
    return answer;
  });
  std::vector<RedisCluster::Command> commands;
  for (const std::string& key : keys_) commands.push_back({key, {"HET.STAT", key}});
  std::vector<RedisReply> replies;
  ASSERT_TRUE(cluster.AskAll(commands, 5, &replies).ok());
  ASSERT_EQ(replies.size(), keys_.size());
  for (const RedisReply& reply : replies) EXPECT_EQ(reply.integer, 1);
}

// Long strings are read in place, and bytes behind them are not lost.
TEST_F(ConnectionTest, AnswersOfAnyLengthInOneStream) {
  FakeServer server(&service_);
  server.SetScript([](const FakeServer::Command& command) -> std::string {
    const size_t size = std::stoul(command.words[1]);
    if (command.words[0] == "NUMBER") return ":" + command.words[1];
    return "$" + command.words[1] + "\r\n" + std::string(size, static_cast<char>('a' + size % 26));
  });
  BytePool pool;
  RedisConnection connection(server.address().nodes[0], server.address(), &pool);
  std::vector<std::vector<std::string>> commands;
  Random r(1);
  for (int i = 0; i < 200; ++i) {
    const size_t most = r.Chance(0.5) ? 100 : r.Chance(0.85) ? 3 * RedisConnection::kDirectBytes : 2000000;
    commands.push_back({r.Chance(0.3) ? "NUMBER" : "STRING", std::to_string(r.Below(most))});
  }
  std::vector<RedisReply> replies;
  const Status status = connection.Ask(commands, 60, &replies);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(replies.size(), commands.size());
  for (size_t i = 0; i < replies.size(); ++i) {
    const size_t size = std::stoul(commands[i][1]);
    if (commands[i][0] == "NUMBER") {
      EXPECT_EQ(replies[i].integer, static_cast<int64_t>(size)) << i;
    } else {
      EXPECT_TRUE(replies[i].text() == std::string(size, static_cast<char>('a' + size % 26))) << i;
    }
    pool.Give(std::move(replies[i].bytes));
  }
}

}  // namespace
}  // namespace het::testing
