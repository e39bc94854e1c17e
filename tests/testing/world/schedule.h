// Random schedules of the clock protocol: reads, writes, inference, flushes, faults and failovers. The
// invariants I1-I5 (docs/protocol.md) are checked after every step. A failure prints the seed and the world;
// HET_TEST_SEED=n runs only that seed.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/testing/world/operator.h"
#include "tests/testing/world/stream.h"
#include "tests/testing/world/world.h"

namespace het::testing {

class Schedule {
 public:
  explicit Schedule(const WorldConfig& config);
  ~Schedule();

  // Returns the first error, or "".
  std::string Run(int steps);

  World& world() { return world_; }

 private:
  bool Lost() { return world_.lossy() && !world_.keeps(); }
  void Expect(const Status& status);
  // Worker w's next batch: one whose lookup began early, or a new one.
  std::unique_ptr<TestStep> NextStep(size_t w);
  std::unique_ptr<TestStep> NewStep();
  void BeginEarly(size_t w);
  // Starts reads, and meanwhile other reads, and writes whose pushes the answers lack.
  void Overlap(size_t w);
  // Worker w waits for data, and its thread looks after its pushes.
  void Wait(size_t w);
  void OneStep();
  // Restarts a partition, or lets it fail over.
  void Fail();

  World world_;
  Operator operator_;
  std::unique_ptr<Stream> stream_;                             // null: each worker has batches of its own
  std::vector<std::deque<std::unique_ptr<TestStep>>> open_;    // by worker: lookups without their gradient
  std::vector<std::deque<std::unique_ptr<TestStep>>> coming_;  // by worker: lookups that have begun early
  std::map<uint32_t, World::Saved> snapshots_;
  std::string error_;
};

// Runs one schedule. Ids that are otherwise random follow the seed, so that a failure is reproducible.
inline void RunSchedule(const WorldConfig& config) {
  constexpr int kSteps = 60;
  FixRandomIds(config.seed);
  const std::string error = Schedule(config).Run(kSteps);
  FixRandomIds(0);
  ASSERT_EQ(error, "") << "HET_TEST_SEED=" << config.seed;
}

// How many of `count` schedules are played. `make test` plays all of a scale in the release build; a
// sanitizer, which takes fifteen times as long, looks at a tenth of them.
inline uint64_t PlayedOf(uint64_t count) {
#if defined(__SANITIZE_ADDRESS__)
  count /= 10;
#endif
  return Scaled(count);
}

// Runs the schedules of make(seed), a WorldConfig, until one fails.
template <typename Make>
void RunSchedules(uint64_t count, Make make) {
  const char* only = std::getenv("HET_TEST_SEED");
  const uint64_t first = only == nullptr ? 1 : std::strtoull(only, nullptr, 10);
  const uint64_t end = only == nullptr ? first + PlayedOf(count) : first + 1;
  for (uint64_t seed = first; seed < end && !::testing::Test::HasFatalFailure(); ++seed)
    RunSchedule(make(seed));
}

}  // namespace het::testing
