// Worker processes train while servers are killed, stopped, filled, replaced and resharded, and while a
// worker dies: no update is lost or applied twice, and the bounds hold as long as nothing is lost.
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <set>
#include <thread>
#include <utility>

#include "tests/testing/random.h"
#include "tests/testing/redis/fleet.h"
#include "tests/testing/redis/redis_shards.h"
#include "tests/testing/stored_rows.h"

namespace het::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kMostWorkers = Fleet::kDim;
constexpr Key kKeys = 24;  // 0 .. kKeys - 1

// A number for each worker and key.
using Ticks = std::array<std::array<int64_t, kKeys>, kMostWorkers>;

// What each worker has done, so that every worker can tell at any moment which ticks exist and check its
// reads against that. The gradient of worker w is -1 in coordinate w, so coordinate v of any copy of a row is
// the number of worker v's ticks in it.
struct Ledger : FleetState {
  struct Worker {
    std::atomic<int64_t> begun[kKeys];  // ticks of each key: counted before the update is made
    std::atomic<int64_t> done[kKeys];   // and when it has returned
    std::atomic<uint64_t> steps{0};
    std::atomic<uint64_t> updates{0};  // the sum of `done`
    std::atomic<uint64_t> resends{0};  // frames sent again
    std::atomic<uint64_t> lost{0};     // acknowledged by the server, lost by it, and no longer at the worker
    std::atomic<uint64_t> notices{0};  // messages to users about a wait
    std::atomic<bool> ready{false};
  };
  Worker workers[kMostWorkers];
  char notice[512] = {};

  Ticks Now(std::atomic<int64_t> (Worker::*of)[kKeys]) const {
    Ticks now;
    for (uint32_t w = 0; w < kMostWorkers; ++w) {
      for (size_t key = 0; key < kKeys; ++key) now[w][key] = (workers[w].*of)[key];
    }
    return now;
  }
  uint64_t Sum(std::atomic<uint64_t> Worker::*counter) const {
    uint64_t sum = 0;
    for (const Worker& worker : workers) sum += (worker.*counter).load();
    return sum;
  }
};

struct PsConfig {
  uint32_t workers = 2;
  CacheConfig cache;
  ClientConfig client;
  // Servers may lose acknowledged updates, which workers resend: until then others miss more than I3 allows.
  bool may_lose = false;
};

// Workers with random schedules, and the checks of docs/protocol.md (the World checks I2, and I1 in a
// worker).
class PsFleet : public Fleet {
 public:
  PsFleet(PsConfig config, const ServerAddress& address) : Fleet(address), config_(std::move(config)) {}

  Ledger& state() override { return *ledger_; }
  // Updates that servers lacked, for the bounds allow it.
  uint64_t held_back() const { return held_back_; }

  void StartAll() {
    for (uint32_t w = 0; w < config_.workers; ++w) Start("worker" + std::to_string(w));
    Await("workers are ready", [&] {
      return std::all_of(ledger_->workers, ledger_->workers + config_.workers,
                         [](const Ledger::Worker& worker) { return worker.ready.load(); });
    });
  }
  void AwaitUpdates(uint64_t more) {
    const uint64_t until = ledger_->Sum(&Ledger::Worker::updates) + more;
    Await("updates are made", [&] { return ledger_->Sum(&Ledger::Worker::updates) >= until; });
  }
  // I1 at the server: it has all ticks of a worker's ended steps, except s_push.
  void CheckServer() {
    const Ticks done = ledger_->Now(&Ledger::Worker::done);
    const StoredRows rows = RowsOf(&store(), schema());
    const SyncPolicy sync = config_.cache.sync();
    for (uint32_t w = 0; w < config_.workers; ++w) {
      for (Key key = 0; key < kKeys; ++key) {
        const int64_t lacks = done[w][key] - Stored(rows, w, key);
        held_back_ += lacks > 0;
        EXPECT_LE(lacks, sync.most_unapplied(AllTicks(key))) << "I1: of worker " << w << ", key " << key;
      }
    }
  }
  // I5 at the end: the server holds every tick of every worker once. Rows of the killed worker `dead` may
  // lack as many ticks as may be unsent, and those of the running step.
  void CheckConserved(uint32_t dead = kMostWorkers) {
    const StoredRows rows = RowsOf(&store(), schema());
    for (Key key = 0; key < kKeys; ++key) {
      int64_t ticks = 0;
      for (uint32_t w = 0; w < config_.workers; ++w) {
        const int64_t there = Stored(rows, w, key), begun = ledger_->workers[w].begun[key];
        ticks += there;
        if (w == dead) {
          EXPECT_LE(there, begun) << "ticks of the killed worker, key " << key;
          EXPECT_LE(ledger_->workers[w].done[key] - there, config_.cache.push_bound.most)
              << "key " << key << ": more than s_push is lost";
        } else {
          EXPECT_EQ(there, begun) << "ticks of worker " << w << ", key " << key;
        }
      }
      EXPECT_EQ(rows.count(key) == 0 ? 0 : std::get<Clock>(rows.at(key)), ticks) << "clock of key " << key;
    }
  }

 private:
  void Run(const std::string& name) override {
    const auto rank = static_cast<uint32_t>(name.back() - '0');
    Ledger::Worker& mine = ledger_->workers[rank];
    ClientConfig client = config_.client;
    client.notice = [&](const std::string& text) {
      ++mine.notices;
      std::snprintf(ledger_->notice, sizeof(ledger_->notice), "%s", text.c_str());
    };
    RemoteWorker worker(address(), client, config_.cache);
    const auto succeeds = [&](const Status& status, const char* what) {
      if (!status.ok()) ledger_->Error(name + ", " + what + ": " + status.message());
      return status.ok();
    };
    Random random(rank);
    const auto pause = [&](double chance) {
      if (random.Chance(chance))
        std::this_thread::sleep_for(std::chrono::duration<double>(random.Unit() * 0.001));
    };
    Seen before;  // at the begin of the lookup before
    std::vector<float> rows;
    mine.ready = true;
    while (!ledger_->stop) {
      if (random.Chance(0.03) && !succeeds(worker.engine().caches().Flush(), "a flush")) return;
      std::set<Key> keys;
      for (uint64_t n = random.Below(12) + 1; n > 0; --n) {
        keys.insert(random.Between(0, random.Chance(0.5) ? 3 : kKeys - 1));
      }
      Batch batch{{keys.begin(), keys.end()}, std::vector<float>(keys.size() * kDim)};
      const Seen now{ledger_->Now(&Ledger::Worker::done), ledger_->Now(&Ledger::Worker::begun)};
      if (!succeeds(worker.TryLookup(batch.ids, &rows), "a lookup")) return;
      // With notified checks, bounds hold as of the answer to the lookup before.
      const Seen& must_see = config_.cache.checks == Checks::kAsked ? now : before;
      for (size_t i = 0; i < batch.ids.size(); ++i) CheckRow(rank, batch.ids[i], &rows[i * kDim], must_see);
      before = now;
      if (random.Chance(0.1)) continue;  // its gradient never comes
      pause(0.05);
      for (size_t i = 0; i < batch.ids.size(); ++i) {
        batch.gradients[i * kDim + rank] = -1;
        ++mine.begun[batch.ids[i]];
      }
      if (!succeeds(worker.TryApply(batch, 1), "an update")) return;
      for (const Key key : batch.ids) ++mine.done[key];
      mine.updates += batch.ids.size();
      ++mine.steps;
      Count(&worker, &mine);
      pause(0.2);
    }
    // A worker resends a partition's lost updates at its next contact.
    std::vector<int64_t> all(kKeys);
    std::iota(all.begin(), all.end(), 0);
    if (!succeeds(worker.TryLookup(all, &rows), "the last lookup")) return;
    if (succeeds(worker.engine().caches().Flush(), "the last flush")) Count(&worker, &mine);
  }
  static void Count(RemoteWorker* worker, Ledger::Worker* mine) {
    const TableStats stats = worker->engine().tables().StatsHere().at(0);
    mine->resends = stats.cache->counters.resends;
    mine->lost = stats.cache->counters.lost_pushes;
  }
  // The ticks that a read must see, within the bounds.
  struct Seen {
    Ticks done{}, begun{};
  };
  // I3 and I4.
  void CheckRow(uint32_t rank, Key key, const float* row, const Seen& must_see) {
    const auto at = static_cast<size_t>(key);
    const std::string where = " (worker " + std::to_string(rank) + ", key " + std::to_string(key) + ")";
    int64_t unseen = 0, unseen_done = 0;
    for (uint32_t w = 0; w < config_.workers; ++w) {
      const auto seen = static_cast<int64_t>(row[w]);
      const int64_t begun = ledger_->workers[w].begun[at];
      if (seen < 0 || seen > begun || (w == rank && seen != begun)) {
        ledger_->Error("I4: sees " + std::to_string(seen) + " of " + std::to_string(begun) +
                       " ticks of worker " + std::to_string(w) + where);
      }
      if (w == rank) continue;
      unseen += std::max<int64_t>(must_see.begun[w][at] - seen, 0);
      unseen_done += std::max<int64_t>(must_see.done[w][at] - seen, 0);
    }
    const auto others = static_cast<int64_t>(config_.workers) - 1;
    const Clock ticks = AllTicks(key);
    const int64_t most =
        config_.cache.pull_bound.Of(ticks) + others * config_.cache.sync().most_unapplied(ticks);
    if (!config_.may_lose && (unseen > most + others || unseen_done > most)) {
      ledger_->Error("I3: " + std::to_string(unseen) + " foreign ticks unseen, " +
                     std::to_string(unseen_done) + " of them of ended steps; allowed are " +
                     std::to_string(most + others) + " and " + std::to_string(most) + where);
    }
  }
  // Ticks of all workers, including those of running steps.
  Clock AllTicks(Key key) const {
    Clock ticks = 0;
    for (const Ledger::Worker& worker : ledger_->workers) ticks += worker.begun[key];
    return ticks;
  }
  // A worker's ticks of a row in the store.
  static int64_t Stored(const StoredRows& rows, uint32_t worker, Key key) {
    return rows.count(key) == 0 ? 0 : static_cast<int64_t>(std::get<3>(rows.at(key))[worker]);
  }

  const PsConfig config_;
  const Shared<Ledger> ledger_ = NewShared<Ledger>();
  uint64_t held_back_ = 0;
};

class RedisFaults : public NeedsRedis<> {
 protected:
  static PsConfig Config(uint32_t workers, int64_t bound) {
    PsConfig config;
    config.workers = workers;
    config.cache.pull_bound = bound;
    config.cache.push_bound = bound;
    config.cache.capacity = 9;
    config.cache.write_back_rows = 3;
    config.client.max_backoff = 0.1;
    config.client.deadline = 30;
    return config;
  }
  static uint64_t Resends(PsFleet* fleet) { return fleet->state().Sum(&Ledger::Worker::resends); }
  static uint64_t Updates(PsFleet* fleet) { return fleet->state().Sum(&Ledger::Worker::updates); }
  static void Sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }
};

TEST_F(RedisFaults, EightKills) {
  RedisShards servers(1, RedisServer::Logged());
  PsFleet fleet(Config(2, 2), servers.address());
  fleet.StartAll();
  for (int kills = 0; kills < 8; ++kills) {
    fleet.AwaitUpdates(190);
    ASSERT_TRUE(servers[0].Restart()) << servers[0].Log();
  }
  fleet.AwaitUpdates(60);
  fleet.CheckServer();
  fleet.Finish();
  fleet.CheckConserved();
  EXPECT_GE(Updates(&fleet), 1500u);
  EXPECT_GT(Resends(&fleet), 0u);
}

// One of two servers stops for longer than all time-outs: requests are sent again on other connections while
// their first bytes still wait in the stopped server's socket.
TEST_F(RedisFaults, AStoppedServer) {
  RedisShards servers(2);
  PsConfig config = Config(2, 2);
  config.client.request_timeout = 1;
  PsFleet fleet(config, servers.address());
  fleet.StartAll();
  fleet.AwaitUpdates(200);
  const uint64_t before = Updates(&fleet);
  kill(servers[1].pid(), SIGSTOP);
  Sleep(6);
  EXPECT_LE(Updates(&fleet), before + 100) << "training stalls";
  kill(servers[1].pid(), SIGCONT);
  fleet.AwaitUpdates(400);
  EXPECT_GE(fleet.state().workers[0].notices, 1u);
  EXPECT_GE(fleet.state().workers[1].notices, 1u);
  const std::string notice = fleet.state().notice;
  EXPECT_THAT(notice, HasSubstr(" waited for 5 s; partition"));
  EXPECT_THAT(notice, HasSubstr("it is tried again until "));
  fleet.CheckServer();
  fleet.Finish();
  fleet.CheckConserved();
}

TEST_F(RedisFaults, KilledWorkerLosesOnlyUnsentTicks) {
  for (int64_t bound : {0, 5}) {
    RedisShards servers(2);
    PsFleet fleet(Config(3, bound), servers.address());
    fleet.StartAll();
    fleet.AwaitUpdates(200);
    fleet.Kill("worker1");
    const uint64_t others = fleet.state().workers[0].steps + fleet.state().workers[2].steps;
    fleet.AwaitUpdates(300);
    EXPECT_GT(fleet.state().workers[0].steps + fleet.state().workers[2].steps, others + 10);
    fleet.CheckServer();
    fleet.Finish();
    fleet.CheckConserved(/*dead=*/1);
  }
}

// The bounds grow with a row's ticks: young rows are exact, old ones as stale as HET's. Defect: a server or a
// worker takes the largest bound for every row.
TEST_F(RedisFaults, PartitionsMoveUnderSeveralWorkers) {
  RedisShards servers(2);
  PsConfig config = Config(3, 3);
  config.cache.pull_bound = Bound(20, 4);
  config.cache.push_bound = Bound(12, 16);
  config.cache.checks = Checks::kNotified;
  config.cache.capacity = 100;
  PsFleet fleet(config, servers.address());
  fleet.StartAll();
  for (int round = 0; round < 3; ++round) {
    for (uint32_t p = 0; p < Fleet::kPartitions; ++p) {
      const size_t from = (p >= Fleet::kPartitions / 2) == (round % 2 == 0) ? 1 : 0;
      fleet.AwaitUpdates(20);
      servers.Move(fleet.PartitionKey(p), from, 1 - from);
      fleet.CheckServer();
    }
  }
  fleet.AwaitUpdates(100);
  EXPECT_GT(fleet.held_back(), 0u);
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
      fleet->AwaitUpdates(60);
    }
    master->Kill();
    ASSERT_TRUE(replica->Command({"CLUSTER", "FAILOVER", "TAKEOVER"}).ok());
    ASSERT_TRUE(replica->Await("replication", "role:master"));
    ASSERT_TRUE(replica->Command({"CONFIG", "SET", "masterauth", ""}).ok());
    fleet->AwaitUpdates(60);
    ASSERT_TRUE(master->Start()) << master->Log();
    ASSERT_TRUE(master->Await("replication", "master_link_status:up")) << master->Log();
  }
  static void Run(PsFleet* fleet, RedisShards* servers, size_t shards, Replica state) {
    fleet->StartAll();
    for (size_t round = 0; round < 3; ++round) {
      fleet->AwaitUpdates(150);
      RedisServer* pair[] = {&(*servers)[0], &(*servers)[shards]};
      FailOver(fleet, pair[round % 2], pair[1 - round % 2], state);
    }
    fleet->AwaitUpdates(100);
    fleet->Finish();
  }
  static PsConfig Keeping(Durability durability) {
    PsConfig config = Config(2, 2);
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
    PsFleet fleet(Keeping(durability), servers.address());
    Run(&fleet, &servers, 2, state);
    fleet.CheckConserved();
    EXPECT_EQ(fleet.state().Sum(&Ledger::Worker::lost), 0u);
    // A connected replica may lack nothing.
    if (state == kIsCutOff) {
      EXPECT_GT(Resends(&fleet), 0u);
    }
  }
}

// The cluster's own map shows the successor.
TEST_F(RedisFailover, AnAddressThatNamesTheMasterAlone) {
  RedisShards servers(1, RedisServer::Logged(), /*replicas=*/1);
  PsConfig config = Keeping(Durability::kReplicated);
  PsFleet fleet(config, servers.AddressOf(0));
  Run(&fleet, &servers, 1, kIsCutOff);
  fleet.CheckConserved();
}

}  // namespace
}  // namespace het::testing
