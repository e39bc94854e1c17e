// Random schedules of the clock protocol: reads, writes, inference, flushes, faults and failovers, with the
// invariants I1-I5 (docs/concepts.md) asserted after every step. A failure prints the seed and the world;
// HET_TEST_SEED=n runs that seed alone.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/cpp/testing/world/world.h"

namespace het::testing {

inline constexpr int64_t kBounds[] = {0, 1, 4, 10, kUnbounded};

WorldConfig RandomConfig(uint64_t seed);

class Schedule {
 public:
  Schedule(const WorldConfig& config, bool failovers);
  ~Schedule();

  // The first thing that went wrong, or "".
  std::string Run(int steps);

  World& world() { return world_; }

 private:
  bool Lost() { return world_.lossy() && !world_.keeps(); }
  void Expect(const Status& status);
  // What worker w asks for next: a batch that was prefetched, or another one.
  std::vector<std::vector<Key>> Keys(size_t w);
  std::vector<std::vector<Key>> NewKeys();
  void Prefetch(size_t w);
  // Reads that are on their way while the worker goes on: other reads, and writes whose pushes the answers
  // lack.
  void Overlap(size_t w);
  void OneStep();

  World world_;
  const bool failovers_;
  std::vector<std::deque<std::unique_ptr<TestStep>>> open_;  // by worker: lookups without their gradient
  std::vector<std::deque<std::vector<std::vector<Key>>>> coming_;  // by worker: batches prefetched
  std::map<uint32_t, Bytes> snapshots_;
  std::string error_;
};

// Runs schedules until one fails.
template <typename Tweak>
void RunSchedules(uint64_t count, int steps, bool failovers, Tweak tweak) {
  const char* only = std::getenv("HET_TEST_SEED");
  const uint64_t first = only == nullptr ? 1 : std::strtoull(only, nullptr, 10);
  for (uint64_t seed = first; seed < (only == nullptr ? first + Scaled(count) : first + 1); ++seed) {
    WorldConfig config = RandomConfig(seed);
    tweak(&config);
    const std::string error = Schedule(config, failovers).Run(steps);
    ASSERT_EQ(error, "") << "HET_TEST_SEED=" << seed;
  }
}

}  // namespace het::testing
