// Worker processes train while servers are killed, stopped, filled, replaced and resharded, and while a
// worker dies: no update is lost or applied twice, and the bounds hold as long as nothing is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <thread>

#include "tests/testing/redis/ps_fleet.h"

namespace het::testing {
namespace {

using ::testing::HasSubstr;

class RedisFaults : public NeedsRedis<> {
 protected:
  static PsWorkerConfig Config(uint32_t workers, int64_t bound) {
    PsWorkerConfig config;
    config.workers = workers;
    config.cache.pull_bound = bound;
    config.cache.push_bound = bound;
    config.cache.capacity = 9;
    config.cache.write_back_rows = 3;
    config.client.max_backoff = 0.1;
    config.client.deadline = 30;
    return config;
  }
  static uint64_t Resends(PsFleet* fleet) { return fleet->ledger().Sum(&Ledger::Worker::resends); }
  static uint64_t Pushes(PsFleet* fleet) { return fleet->ledger().Sum(&Ledger::Worker::pushes); }
  static void Sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }
};

TEST_F(RedisFaults, EightKillsInFifteenHundredPushes) {
  RedisShards servers(1, RedisServer::Logged());
  PsFleet fleet(Config(2, 2), &servers);
  fleet.Start();
  for (int kills = 0; kills < 8; ++kills) {
    fleet.AwaitPushes(190);
    ASSERT_TRUE(servers[0].Restart()) << servers[0].Log();
  }
  fleet.AwaitPushes(60);
  fleet.CheckServer();
  fleet.Finish();
  fleet.CheckConserved();
  EXPECT_GE(Pushes(&fleet), 1500u);
  EXPECT_GT(Resends(&fleet), 0u);
  std::printf("  %lu pushes, 8 kills, %lu sent again\n", Pushes(&fleet), Resends(&fleet));
}

// One of two servers stops for longer than all time-outs: requests are sent again on other connections while
// their first bytes still wait in the stopped server's socket.
TEST_F(RedisFaults, AStoppedServer) {
  RedisShards servers(2);
  PsWorkerConfig config = Config(2, 2);
  config.client.request_timeout = 1;
  PsFleet fleet(config, &servers);
  fleet.Start();
  fleet.AwaitPushes(200);
  const uint64_t before = Pushes(&fleet);
  kill(servers[1].pid(), SIGSTOP);
  Sleep(6);
  EXPECT_LE(Pushes(&fleet), before + 100) << "training stalls";
  kill(servers[1].pid(), SIGCONT);
  fleet.AwaitPushes(400);
  EXPECT_GE(fleet.ledger().workers[0].notices, 1u);
  EXPECT_GE(fleet.ledger().workers[1].notices, 1u);
  const std::string notice = fleet.ledger().notice;
  EXPECT_THAT(notice, HasSubstr(" waited for 5 s; partition"));
  EXPECT_THAT(notice, HasSubstr("it is tried again until "));
  fleet.CheckServer();
  fleet.Finish();
  fleet.CheckConserved();
}

TEST_F(RedisFaults, KilledWorkerLosesOnlyUnsentTicks) {
  for (int64_t bound : {0, 5}) {
    RedisShards servers(2);
    PsFleet fleet(Config(3, bound), &servers);
    fleet.Start();
    fleet.AwaitPushes(200);
    fleet.KillWorker(1);
    const uint64_t others = fleet.ledger().workers[0].steps + fleet.ledger().workers[2].steps;
    fleet.AwaitPushes(300);
    EXPECT_GT(fleet.ledger().workers[0].steps + fleet.ledger().workers[2].steps, others + 10);
    fleet.CheckServer();
    fleet.Finish();
    fleet.CheckConserved(/*dead=*/1);
  }
}

// The bounds grow with a row's ticks: young rows are exact, old ones as stale as HET's. Defect: a server or a
// worker takes the largest bound for every row.
TEST_F(RedisFaults, PartitionsMoveUnderSeveralWorkers) {
  RedisShards servers(2);
  PsWorkerConfig config = Config(3, 3);
  config.cache.pull_bound = Bound(20, 4);
  config.cache.push_bound = Bound(12, 16);
  config.cache.checks = Checks::kNotified;
  config.cache.capacity = 100;
  PsFleet fleet(config, &servers);
  fleet.Start();
  for (int round = 0; round < 3; ++round) {
    for (size_t p = 0; p < kFleetPartitions; ++p) {
      const size_t from = (p >= kFleetPartitions / 2) == (round % 2 == 0) ? 1 : 0;
      fleet.AwaitPushes(20);
      servers.Move(fleet.partition_keys()[p], from, 1 - from);
      fleet.CheckServer();
    }
  }
  fleet.AwaitPushes(100);
  EXPECT_GT(fleet.ledger().held_back, 0u);
  fleet.Finish();
  fleet.CheckConserved();
}

// Masters are killed and their replicas take over. The pair is servers 0 and `shards`.
class RedisFailover : public RedisFaults {
 protected:
  enum Replica { kFollows, kIsCutOff };

  // kIsCutOff: the replica lost its master earlier, so it lacks later acknowledged updates.
  static void FailOver(PsFleet* fleet, RedisServer* master, RedisServer* replica, Replica state) {
    if (state == kIsCutOff) {
      // Without partitions it cannot take over.
      ASSERT_TRUE(master->AwaitCopy(replica)) << replica->Log();
      // The replica cannot reconnect: the master has no password.
      ASSERT_TRUE(replica->Command({"CONFIG", "SET", "masterauth", "wrong"}).ok());
      master->Command({"CLIENT", "KILL", "TYPE", "replica"});
      fleet->AwaitPushes(60);
    }
    master->Kill();
    ASSERT_TRUE(replica->Command({"CLUSTER", "FAILOVER", "TAKEOVER"}).ok());
    ASSERT_TRUE(replica->Await("replication", "role:master"));
    ASSERT_TRUE(replica->Command({"CONFIG", "SET", "masterauth", ""}).ok());
    fleet->AwaitPushes(60);
    ASSERT_TRUE(master->Start()) << master->Log();
    ASSERT_TRUE(master->Await("replication", "master_link_status:up")) << master->Log();
  }
  static void Run(PsFleet* fleet, RedisShards* servers, size_t shards, Replica state) {
    fleet->Start();
    for (size_t round = 0; round < 3; ++round) {
      fleet->AwaitPushes(150);
      RedisServer* pair[] = {&(*servers)[0], &(*servers)[shards]};
      FailOver(fleet, pair[round % 2], pair[1 - round % 2], state);
    }
    fleet->AwaitPushes(100);
    fleet->Finish();
  }
  static PsWorkerConfig Keeping(Durability durability) {
    PsWorkerConfig config = Config(2, 2);
    config.may_lose = true;
    config.client.durability = durability;
    return config;
  }
};

TEST_F(RedisFailover, FramesThatAreKeptComeAgain) {
  const std::pair<Durability, Replica> cases[] = {{Durability::kReplicated, kFollows},
                                                  {Durability::kReplicated, kIsCutOff},
                                                  {Durability::kCheckpoint, kIsCutOff}};
  for (const auto& [durability, state] : cases) {
    SCOPED_TRACE(::testing::PrintToString(static_cast<int>(durability)) +
                 (state == kFollows ? " follows" : ""));
    RedisShards servers(2, RedisServer::Logged(), /*replicas=*/2);
    PsFleet fleet(Keeping(durability), &servers);
    Run(&fleet, &servers, 2, state);
    fleet.CheckConserved();
    EXPECT_EQ(fleet.ledger().Sum(&Ledger::Worker::lost), 0u);
    // A connected replica may lack nothing.
    if (state == kIsCutOff) {
      EXPECT_GT(Resends(&fleet), 0u);
    }
  }
}

// The cluster's own map shows the successor.
TEST_F(RedisFailover, AnAddressThatNamesTheMasterAlone) {
  RedisShards servers(1, RedisServer::Logged(), /*replicas=*/1);
  PsWorkerConfig config = Keeping(Durability::kReplicated);
  config.address = servers.AddressOf(0);
  PsFleet fleet(config, &servers);
  Run(&fleet, &servers, 1, kIsCutOff);
  fleet.CheckConserved();
}

}  // namespace
}  // namespace het::testing
