// The client and a real server: replicas that take over, pushes that continue between calls, and states in
// which a server refuses.
#include <gmock/gmock.h>
#include <signal.h>

#include "het_tf/core/wire/layout.h"
#include "het_tf/ext/ps/client/redis_changes.h"
#include "het_tf/ext/ps/client/redis_store.h"
#include "tests/testing/redis/remote_worker.h"
#include "tests/testing/temp_folder.h"

namespace het::testing {
namespace {

using ::testing::HasSubstr;

using RedisClientTest = NeedsRedis<>;

// --- replicas

// A server and its replica behind one address, which a promotion switches.
class FailoverTest : public RedisClientTest {
 protected:
  void Start() {
    const std::string port = std::to_string(RedisServer::FreePort());
    master_ = std::make_unique<RedisServer>(
        RedisServer::Arguments{"--port", port, "--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0"});
    replica_ = std::make_unique<RedisServer>(RedisServer::Arguments{"--replicaof", "127.0.0.1 " + port});
    ASSERT_TRUE(replica_->Await("replication", "master_link_status:up")) << replica_->Log();
    // The master counts the replica a moment later.
    ASSERT_TRUE(master_->Await("replication", "state=online")) << master_->Log();
    PointAt(*master_);
  }
  void PointAt(const RedisServer& server) {
    std::filesystem::remove(link_);
    std::filesystem::create_symlink(server.dir() + "/socket", link_);
  }
  ServerAddress address() const { return ParseServerAddress("unix://" + link_).value(); }
  // 20 steps that the replica has, 30 that it lacks, and 10 on the replica as the new master.
  void LoseAndGoOn(RemoteWorker* worker) {
    for (int i = 0; i < 20; ++i) worker->Train({i % 5, 7});
    ASSERT_TRUE(master_->AwaitCopy(replica_.get()));
    ASSERT_TRUE(replica_->Command({"REPLICAOF", "NO", "ONE"}).ok());  // it gets no more updates
    for (int i = 0; i < 30; ++i) worker->Train({i % 5, 7});
    master_->Kill();
    PointAt(*replica_);
    for (int i = 0; i < 10; ++i) worker->Train({i % 5, 7});
    worker->Flush();
  }

  const TempFolder folder_;
  const std::string link_ = folder_.path() + "/address";
  std::unique_ptr<RedisServer> master_;
  std::unique_ptr<RedisServer> replica_;
};

TEST_F(FailoverTest, WhatTheReplicaLacksIsSentAgainOrReported) {
  for (const bool kept : {true, false}) {
    Start();
    ClientConfig config;
    config.durability = kept ? Durability::kReplicated : Durability::kApplied;
    RemoteWorker worker(address(), config);
    LoseAndGoOn(&worker);
    EXPECT_EQ(worker.Value(7), kept ? 60 : 30);
    for (int64_t id = 0; id < 5; ++id) EXPECT_EQ(worker.Value(id), kept ? 12 : 6) << id;
    EXPECT_EQ(worker.Counter("lost_pushes") >= 30, !kept);
    EXPECT_EQ(worker.Counter("lost_pushes") == 0, kept);
    EXPECT_EQ(worker.Counter("repaired") > 0, kept);
    const std::vector<std::string> notices = worker.NoticesWith("came to life again");
    ASSERT_EQ(notices.size(), 1u);
    EXPECT_THAT(notices[0], HasSubstr(kept ? "were kept and are sent again" : "are lost"));
  }
}

// Two servers change places and back, as in an upgrade. Nothing is lost, no worker restarts, and the first
// server has the same partitions as before.
TEST_F(FailoverTest, SwitchoverAndBackLosesNothing) {
  Start();
  ASSERT_TRUE(replica_->Command({"CONFIG", "SET", "port", std::to_string(RedisServer::FreePort())}).ok());
  ClientConfig config;
  config.deadline = 10;
  RemoteWorker worker(address(), config);
  for (int i = 0; i < 10; ++i) worker.Train({i % 5, 7});
  for (int turn = 0; turn < 2; ++turn) {
    ASSERT_TRUE(master_->AwaitCopy(replica_.get()));
    const int64_t full = replica_->Info("stats", "sync_full");
    ASSERT_TRUE(replica_->Command({"REPLICAOF", "NO", "ONE"}).ok());
    const std::string port = std::to_string(replica_->Info("server", "tcp_port"));
    ASSERT_TRUE(master_->Command({"REPLICAOF", "127.0.0.1", port}).ok());
    ASSERT_TRUE(master_->Await("replication", "master_link_status:up")) << master_->Log();
    EXPECT_EQ(replica_->Info("stats", "sync_full"), full) << "it continues without a full resynchronisation";
    master_.swap(replica_);
    ASSERT_TRUE(master_->Await("replication", "state=online"));
    PointAt(*master_);
    replica_->Command({"CLIENT", "KILL", "TYPE", "normal"});
    for (int i = 0; i < 10; ++i) worker.Train({i % 5, 7});
  }
  worker.Flush();
  EXPECT_EQ(worker.Value(7), 30);
  EXPECT_EQ(worker.Counter("lost_pushes"), 0u);
}

TEST_F(FailoverTest, KeptPushesAreForgottenInTheBackground) {
  Start();
  ClientConfig config;
  config.durability = Durability::kReplicated;
  config.keep_bytes = 3000;
  RemoteWorker worker(address(), config);
  for (int i = 0; i < 100; ++i) worker.Train({1, 2, 3});
  EXPECT_EQ(worker.Value(1), 100);
  EXPECT_TRUE(worker.NoticesWith("").empty()) << worker.NoticesWith("")[0];
}

TEST_F(FailoverTest, AServerWithoutReplicasSaysSo) {
  RedisServer alone;
  ClientConfig config;
  config.durability = Durability::kReplicated;
  RemoteWorker worker(alone.address(), config);
  ASSERT_EQ(worker.NoticesWith("has 0 replicas").size(), 1u);
  ASSERT_TRUE(alone.Command({"ACL", "SETUSER", "w", "on", ">pw", "~*", "+@all", "-wait"}).ok());
  EXPECT_TRUE(Fails(
      OpenRemoteEngine(ParseServerAddress("unix://w:pw@" + alone.dir() + "/socket").value(), "", 1, config),
      Code::kFailedPrecondition, "grant the user +wait"));
}

// --- between calls

TEST_F(RedisClientTest, NamespaceWithoutItsFirstPartitionIsRefused) {
  RedisServer server;
  const ServerAddress address = server.address();
  const auto open = [&] { return RedisStore::Open(address, "n", 10, nullptr); };
  ASSERT_FALSE(server.Command({"HSET", "het:n", "partitions", "3"}).error());  // before the first worker
  ASSERT_TRUE(open().ok());
  ASSERT_FALSE(server.Command({"HSET", "het:n", "partitions", "7"}).error());
  EXPECT_TRUE(Fails(open(), Code::kFailedPrecondition,
                    "has 7 partitions, as the key 'het:n' says, and the first of them",
                    "Remedy: set 'het:n' back"));
  EXPECT_EQ(server.Command({"DBSIZE"}).integer, 4) << "no key was made";
  ASSERT_FALSE(server.Command({"HSET", "het:n", "partitions", "3"}).error());
  EXPECT_TRUE(open().ok());
}

TEST_F(RedisClientTest, AFollowerOfAServerWithoutTheNamespaceIsRefused) {
  RedisServer server;
  ASSERT_TRUE(server.up());
  EXPECT_THAT(RedisChanges::Open(server.address(), "other", 5).status().message(),
              HasSubstr("no namespace 'other'"));
  server.Kill();
  EXPECT_EQ(RedisChanges::Open(server.address(), "other", 5).status().code(), Code::kUnavailable);
}

// Its rows lie elsewhere: reads would get initial rows, and training would make a second copy.
TEST_F(RedisClientTest, NamespaceOfAnotherLayoutIsRefused) {
  RedisServer server;
  const ServerAddress address = server.address();
  ASSERT_TRUE(RedisStore::Open(address, "n", 10, nullptr).ok());
  ASSERT_TRUE(RedisChanges::Open(address, "n", 10).ok());
  ASSERT_FALSE(server.Command({"HSET", "het:n", "made", "1"}).error());
  for (const Status& refused : {RedisStore::Open(address, "n", 10, nullptr).status(),
                                RedisChanges::Open(address, "n", 10).status()}) {
    EXPECT_TRUE(Fails(refused, Code::kFailedPrecondition, "another version of het_tf made namespace 'n'",
                      "by rule 1, this one by " + std::to_string(Layout::kRule),
                      "delete 'het:n' and all of 'het:n:*'"));
  }
}

// A load without rows discards no update.
TEST_F(RedisClientTest, EmptyLoadDiscardsNothing) {
  RedisServer server;
  RemoteWorker worker(server.address(), ClientConfig(), /*bound=*/1000000);
  worker.Train({1, 2, 3});
  auto store = ValueOf(RedisStore::Open(server.address(), "", 10, nullptr));
  ASSERT_TRUE(store->BeginLoad("job", 60).ok());
  ASSERT_TRUE(store->AbortLoad("job").ok());
  worker.Train({1});
  worker.Flush();
  EXPECT_EQ(worker.Value(1), 2);
  EXPECT_EQ(worker.Value(2), 1);
  EXPECT_EQ(worker.Counter("discarded_ticks"), 0u);
  EXPECT_TRUE(worker.NoticesWith("discarded").empty());
}

TEST_F(RedisClientTest, RefusedPushIsResentInTheBackground) {
  RedisServer server;
  RemoteWorker worker(server.address(), ClientConfig(), /*bound=*/1000000, /*capacity=*/0);
  worker.Train({1, 2, 3});
  ASSERT_TRUE(Eventually([&] { return server.Info("het", "het_rows") == 3; }));
  ASSERT_TRUE(server.Command({"CONFIG", "SET", "min-replicas-to-write", "1"}).ok());
  worker.Train({4, 5, 6});  // a push that no call waits for, and that is refused
  EXPECT_EQ(server.Info("het", "het_rows"), 3);
  ASSERT_TRUE(server.Command({"CONFIG", "SET", "min-replicas-to-write", "0"}).ok());
  EXPECT_TRUE(Eventually([&] { return server.Info("het", "het_rows") == 6; })) << "no call was made";
}

TEST_F(RedisClientTest, RestartIsNoticedInTheBackground) {
  RedisServer server(RedisServer::Logged());
  RemoteWorker worker(server.address(), ClientConfig(), 1000000, 0);
  worker.Train({1, 2, 3});
  ASSERT_TRUE(Eventually([&] { return server.Info("het", "het_rows") == 3; }));
  kill(server.pid(), SIGSTOP);
  std::thread trainer([&] { worker.Train({4, 5, 6}); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ASSERT_TRUE(server.Restart());
  trainer.join();
  EXPECT_TRUE(Eventually([&] { return server.Info("het", "het_rows") == 6; }));
  EXPECT_EQ(worker.Value(4), 1);
}

TEST_F(RedisClientTest, ManyThreadsAndTheBackground) {
  RedisServer server;
  RemoteWorker worker(server.address(), ClientConfig(), 3, 4);
  std::vector<std::thread> threads;
  std::atomic<bool> stop{false};
  threads.emplace_back([&] {
    while (!stop.load()) static_cast<void>(worker.engine().tables().Stats("t"));
  });
  threads.emplace_back([&] {
    while (!stop.load()) {
      worker.Flush();
      std::this_thread::sleep_for(std::chrono::milliseconds(7));
    }
  });
  for (int i = 0; i < 100; ++i) {
    worker.Train({i % 10, 77});
    if (i % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(12));
  }
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(worker.Value(77), 100);
}

// --- rounding

// Defect: all workers draw the same random numbers, and the errors of synchronous workers add up.
TEST_F(RedisClientTest, WorkersInStepDoNotRoundAlike) {
  RedisServer server;
  CacheConfig cache;
  cache.capacity = 0;
  cache.push_bound = 0;
  cache.wire = RowFormat::kInt4;
  // Each sends rows in 4 bits after its step, whose updates are about half way between two integers.
  const auto train = [](Process* worker) {
    Batch batch;
    for (int64_t id = 0; id < 30; ++id) {
      batch.ids.push_back(id);
      batch.gradients.insert(batch.gradients.end(), {-4, -0.4f, -0.4f});
    }
    worker->Lookup(batch.ids);
    worker->Apply(batch, 1);
    return worker->Lookup(batch.ids);
  };
  RemoteWorker first(server.address(), ClientConfig(), cache),
      second(server.address(), ClientConfig(), cache);
  const std::vector<float> one = train(&first);
  std::vector<float> other = train(&second);
  for (size_t i = 0; i < other.size(); ++i) other[i] -= one[i];
  EXPECT_EQ(one[0], 4);
  EXPECT_EQ(other[0], 4);
  EXPECT_NE(one, other);
}

// --- refusals

// States of a server that refuses pushes, and what a step says. All errors: client/transport_test.cc.
TEST_F(RedisClientTest, WhatIsRefusedIsNeitherLostNorDoubled) {
  for (const auto& [setting, reason] :
       {std::pair("maxmemory", "the store is out of memory"), {"min-replicas-to-write", "NOREPLICAS"}}) {
    SCOPED_TRACE(setting);
    RedisServer server;
    ASSERT_TRUE(server.up()) << server.Log();
    ClientConfig config;
    config.deadline = 2;
    RemoteWorker worker(server.address(), config);
    const std::vector<int64_t> more = Range(100, 200);
    worker.Train(Range(0, 200));
    ASSERT_TRUE(server.Command({"CONFIG", "SET", setting, "1"}).ok());
    // While it refuses, the step reports the reason and the server...
    Status status;
    for (int i = 0; i < 50 && status.ok(); ++i) status = worker.Count(more);
    EXPECT_THAT(status.message(), HasSubstr(reason));
    EXPECT_THAT(status.message(), HasSubstr("partitions "));
    const bool made = status.message().find("a push waited") == 0;
    if (made) {
      EXPECT_THAT(status.message(), HasSubstr("are kept and will be sent. "));
    }
    ASSERT_TRUE(server.Command({"CONFIG", "SET", setting, "0"}).ok());
    // ...and its updates arrive later, once.
    ASSERT_TRUE(Eventually([&] { return worker.engine().caches().Flush().ok(); }));
    worker.Train(more);
    worker.Flush();
    EXPECT_EQ(worker.Value(50), 1);
    EXPECT_EQ(worker.Value(150), made ? 3 : 2);
    EXPECT_EQ(worker.Value(250), made ? 2 : 1);
  }
}

}  // namespace
}  // namespace het::testing
