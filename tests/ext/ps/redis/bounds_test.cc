// The bounds of the clock protocol (I1-I5, docs/protocol.md), with worker processes and real servers: random
// schedules, small caches, and every read checked against the others' published ticks in shared memory.
// Prints the largest staleness beside the bound.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/testing/redis/ps_fleet.h"

namespace het::testing {
namespace {

class RedisBounds : public NeedsRedis<> {
 protected:
  static PsWorkerConfig Config(uint32_t workers, Bound pull, Bound push, Policy policy, size_t capacity) {
    PsWorkerConfig config;
    config.workers = workers;
    config.cache.pull_bound = pull;
    config.cache.push_bound = push;
    config.cache.policy = policy;
    config.cache.capacity = capacity;
    config.cache.write_back_rows = 3;
    config.steps = Scaled(pull == 100 ? 1200 : 400);  // enough ticks to reach the bound
    if (push.most >= 100) config.flushes = 0.001;
    return config;
  }
  static std::string Text(int64_t bound) { return bound == kUnbounded ? "unbounded" : std::to_string(bound); }

  // Checks all invariants. *held_back: rows with unapplied ticks at ends of steps.
  void Hold(PsWorkerConfig config, size_t shards, uint64_t* held_back = nullptr) {
    SCOPED_TRACE(Text(config.cache.pull_bound.most) + " " + Text(config.cache.push_bound.most));
    std::unique_ptr<RedisShards>& servers = servers_[shards];
    if (servers == nullptr) servers = std::make_unique<RedisShards>(shards);
    for (size_t i = 0; i < shards; ++i) ASSERT_TRUE((*servers)[i].Command({"FLUSHALL"}).ok());
    config.seed = ++seed_;
    PsFleet fleet(config, servers.get());
    fleet.Start();
    while (fleet.Running() && fleet.ledger().errors == 0) fleet.CheckServer();
    fleet.Finish();
    fleet.CheckConserved();
    if (held_back != nullptr) *held_back = fleet.ledger().held_back;
    std::printf(
        "  %u workers, %zu server(s), pull %s, push %s, %s of %zu: largest staleness %ld, bound %s; largest "
        "unapplied %ld; %lu rows read\n",
        config.workers, shards, Text(config.cache.pull_bound.most).c_str(),
        Text(config.cache.push_bound.most).c_str(), PolicyName(config.cache.policy), config.cache.capacity,
        fleet.ledger().largest.load(), Text(config.most_unseen(PsWorkerConfig::kOld)).c_str(),
        fleet.ledger().unapplied.load(), fleet.ledger().reads.load());
  }

  std::map<size_t, std::unique_ptr<RedisShards>> servers_;

 private:
  uint64_t seed_ = 0;
};

TEST_F(RedisBounds, EveryBoundHolds) {
  for (int64_t s : {int64_t{0}, int64_t{1}, int64_t{10}, int64_t{100}, kUnbounded}) {
    Hold(Config(2, s, s, Policy::kLru, 5), 1);
    Hold(Config(4, s, s, Policy::kLfu, 100), 1);
    Hold(Config(3, s, s, Policy::kLfu, 9), 2);
  }
}

// A row's bounds grow with its ticks: young rows are exact, old ones as stale as HET's. Defect: a server or a
// worker takes the largest bound for every row.
TEST_F(RedisBounds, ByAgeHold) {
  for (const Checks checks : {Checks::kAsked, Checks::kNotified}) {
    PsWorkerConfig config = Config(3, Bound(20, 4), Bound(12, 16), Policy::kLfu, 100);
    config.cache.checks = checks;
    config.steps = std::max<uint64_t>(config.steps, 200);
    uint64_t held_back = 0;
    Hold(config, 2, &held_back);
    EXPECT_GT(held_back, 100u) << ChecksName(checks);
  }
}

// The settings of het_tf.Cache() with three workers and AdaGrad, except the bound: at
// 9, 4 bits can represent all ticks that a worker may hold back. Few steps, since rows travel in 8 bits.
TEST_F(RedisBounds, ThoseOfAdagradHold) {
  const StalenessBounds bounds = StalenessBounds::Of(/*steps_shrink=*/true, /*staleness=*/9, /*workers=*/3);
  for (const size_t capacity : {4, 100}) {
    PsWorkerConfig config;
    config.workers = 3;
    config.steps = 100;
    config.cache.capacity = capacity;
    config.cache.pull_bound = bounds.pull;
    config.cache.push_bound = bounds.push;
    config.cache.wire = RowFormat::kInt4;
    uint64_t held_back = 0;
    Hold(config, 2, &held_back);
    EXPECT_GT(held_back, 100u) << capacity;
  }
}

}  // namespace
}  // namespace het::testing
