// What processes serve while servers, followers, publishers, writers and readers are killed and stopped,
// while partitions move and replicas take over: no row is older than the age that the reader claims, none is
// torn, and none is older than the cut of the dense weights that were read before it, or too far ahead of it.
#include <signal.h>

#include <cstdlib>
#include <ctime>

#include "tests/testing/random.h"
#include "tests/testing/redis/served_fleet.h"
#include "tests/testing/redis/test_clock.h"

namespace het::testing {
namespace {

class RedisServedFaults : public NeedsRedis<> {
 protected:
  static void Sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }
  static uint64_t Runs() { return Scaled(3); }
};

TEST_F(RedisServedFaults, KilledServers) {
  for (uint64_t run = 0; run < Runs(); ++run) {
    RedisShards servers(1, RedisServer::Logged());
    ServedFleet fleet(&servers, run);
    fleet.StartAll();
    for (int kills = 0; kills < 4; ++kills) {
      ASSERT_TRUE(servers[0].Restart()) << servers[0].Log();
      if (!fleet.AwaitServed()) break;
    }
    fleet.Finish();
  }
}

TEST_F(RedisServedFaults, KilledFollowersPublishersReadersAndWriters) {
  for (uint64_t run = 0; run < Runs(); ++run) {
    RedisShards servers(1);
    ServedFleet fleet(&servers, run);
    fleet.StartAll();
    Random random(run);
    for (int kills = 0; kills < 12; ++kills) {
      fleet.Restart(random.Pick<std::string>({"follower", "follower", "publisher", "reader"}));
      Sleep(0.05 * static_cast<double>(random.Below(6)));
      if (kills % 3 == 0 && !fleet.AwaitServed()) break;
    }
    fleet.Kill("writer1");  // its keys stay as they are
    fleet.Finish();
  }
}

// The server is silent for longer than every time-out, and answers the old questions then.
TEST_F(RedisServedFaults, ASilentServer) {
  for (uint64_t run = 0; run < Runs(); ++run) {
    RedisShards servers(2);
    ServedFleet fleet(&servers, run);
    fleet.StartAll();
    kill(servers[1].pid(), SIGSTOP);
    Sleep(run == 0 ? 1 : 12);
    kill(servers[1].pid(), SIGCONT);
    fleet.Finish();
  }
}

// A follower that was away has missed removals that the server no longer remembers.
TEST_F(RedisServedFaults, AFollowerThatWasAway) {
  for (uint64_t run = 0; run < Runs(); ++run) {
    RedisShards servers(1, {"--het.max-tombstones", "2"});
    ServedFleet fleet(&servers, run);
    fleet.StartAll();
    for (int times = 0; times < 3; ++times) {
      fleet.Signal("follower", SIGSTOP);
      Sleep(0.5);
      fleet.Signal("follower", SIGCONT);
      if (!fleet.AwaitServed()) break;
      fleet.Kill("follower");
      Sleep(0.5);
      fleet.Start("follower");
      if (!fleet.AwaitServed()) break;
    }
    fleet.Finish();
  }
}

TEST_F(RedisServedFaults, AClockThatIsSet) {
  if (!TestClock::CanBeSet()) return TestClock::RunAgain("RedisServedFaults.AClockThatIsSet");
  TestClock clock;
  for (uint64_t run = 0; run < Runs(); ++run) {
    RedisShards servers(1);
    ServedFleet fleet(&servers, run);
    fleet.StartAll();
    for (const int64_t seconds : {-3600, 7200, -86400}) {
      const auto time = [&] {
        const RedisReply reply = servers[0].Command({"EVAL", "return redis.call('TIME')[1]", "0"});
        return static_cast<int64_t>(std::atoll(reply.text.c_str()));
      };
      const int64_t before = time();
      clock.Set(seconds);
      EXPECT_GT(std::abs(time() - before), 3000) << "the server's clock is set, too";
      EXPECT_GT(std::abs(std::time(nullptr) - before), 3000);
      if (!fleet.AwaitServed()) break;
    }
    clock.Set(0);
    fleet.Finish();
  }
}

TEST_F(RedisServedFaults, PartitionsThatMove) {
  for (uint64_t run = 0; run < Runs(); ++run) {
    RedisShards servers(2);
    ServedFleet fleet(&servers, run);
    fleet.StartAll();
    for (uint32_t p = 0; p < kServedPartitions; ++p) {
      const std::string key = fleet.PartitionKeyOf(p);
      const size_t from = servers.OwnerOf(key);
      servers.Move(key, from, 1 - from);
    }
    fleet.AwaitServed();
    fleet.Finish();
  }
}

// Writers rest until the replica has everything, since a failover may lose what it does not have.
TEST_F(RedisServedFaults, ReplicasThatTakeOver) {
  for (uint64_t run = 0; run < Runs(); ++run) {
    RedisShards servers(1, RedisServer::Logged(), /*replicas=*/1);
    ServedFleet fleet(&servers, run);
    fleet.StartAll();
    for (size_t round = 0; round < 3; ++round) {
      RedisServer& primary = servers[round % 2];
      RedisServer& replica = servers[1 - round % 2];
      fleet.Pause();
      ASSERT_TRUE(primary.AwaitCopy(&replica)) << replica.Log();
      primary.Kill();
      ASSERT_TRUE(replica.Command({"CLUSTER", "FAILOVER", "TAKEOVER"}).ok());
      ASSERT_TRUE(replica.Await("replication", "role:master"));
      fleet.Resume();
      if (!fleet.AwaitServed()) break;
      ASSERT_TRUE(primary.Start()) << primary.Log();
      ASSERT_TRUE(primary.Await("replication", "master_link_status:up")) << primary.Log();
    }
    fleet.AwaitServed();
    fleet.Finish();
  }
}

}  // namespace
}  // namespace het::testing
