// The replay of a job (ext/sizing/cc/replay.h) on streams with known counts.
#include "het_tf/ext/sizing/cc/replay.h"

#include <gtest/gtest.h>

#include "tests/testing/random.h"
#include "tests/testing/status.h"
#include "tests/testing/table_specs.h"

namespace het::testing::replay_test {
namespace {

Schema MakeSchema() { return NewSchema("t", 4, "sgd", {"zeros", 0, 0}); }

ReplaySettings Settings(uint32_t workers, size_t capacity, Bound bound) {
  ReplaySettings settings;
  settings.workers = workers;
  settings.partitions = 4;
  settings.ones = true;
  settings.schema = MakeSchema();
  settings.cache.capacity = capacity;
  settings.cache.pull_bound = settings.cache.push_bound = bound;
  settings.cache.checks = Checks::kAsked;
  return settings;
}

Result<ReplayOutcome> Outcome(const std::vector<std::vector<Key>>& batches, const ReplaySettings& settings) {
  const auto append = [&](size_t batch, std::vector<Key>* keys) {
    keys->insert(keys->end(), batches[batch].begin(), batches[batch].end());
  };
  ReplayWatcher nobody;
  Replay replay({batches.size(), append}, settings, &nobody);
  return replay.Run();
}

// A worker's batches repeated; `steps` of each worker.
std::vector<std::vector<Key>> Repeated(const std::vector<std::vector<Key>>& of_worker, size_t steps) {
  std::vector<std::vector<Key>> batches;
  for (size_t step = 0; step < steps; ++step) {
    batches.insert(batches.end(), of_worker.begin(), of_worker.end());
  }
  return batches;
}

TEST(ReplayTest, AloneOnlyTheFirstStepMisses) {
  const ReplayOutcome outcome = Outcome(Repeated({{1, 2, 2, 3}}, 10), Settings(1, 100, kUnbounded)).value();
  EXPECT_EQ(outcome.steps, 10u);
  EXPECT_EQ(outcome.counters.reads, 30u);
  EXPECT_EQ(outcome.counters.miss_pull, 3u);
  EXPECT_EQ(outcome.counters.hits, 27u);
  EXPECT_EQ(outcome.counters.update_pull, 0u);
  EXPECT_EQ(outcome.unsent_rows, 3u);
  EXPECT_EQ(outcome.cached_rows, 3u);
  EXPECT_EQ(outcome.evictions, 0u);
  ReplaySettings settings = Settings(1, 100, kUnbounded);
  settings.warm_steps = 4;
  const ReplayOutcome warm = Outcome(Repeated({{1, 2, 2, 3}}, 10), settings).value();
  EXPECT_EQ(warm.steps, 6u) << "steps that warm up are not counted";
  EXPECT_EQ(warm.counters.miss_pull, 0u);
  EXPECT_EQ(warm.traffic.reads.frames, 0u);
}

// Two exact workers share a key, and each step changes the other's copy.
TEST(ReplayTest, ExactWorkersFetchWhatTheOtherHasChanged) {
  ReplaySettings settings = Settings(2, 100, 0);
  settings.warm_steps = 1;
  const ReplayOutcome outcome = Outcome(Repeated({{1, 2}, {1, 3}}, 11), settings).value();
  EXPECT_EQ(outcome.counters.reads, 40u);
  EXPECT_EQ(outcome.counters.update_pull, 20u);  // key 1, of each worker in every step
  EXPECT_EQ(outcome.counters.bound_push, 40u);
  EXPECT_EQ(outcome.waiting_reads, 20u);
  EXPECT_EQ(outcome.waiting_writes, 20u);
}

// Without frames in flight at the end, the network's counts equal the clients'.
TEST(ReplayTest, BytesOfFramesAreThoseOfTheClients) {
  Random random(7);
  std::vector<std::vector<Key>> batches(80);
  for (auto& batch : batches) {
    for (size_t i = 0; i < 30; ++i) batch.push_back(static_cast<Key>(random.Below(200)));
  }
  ReplaySettings settings = Settings(4, 40, 0);
  settings.cache.workers = 4;
  settings.cache.wire = RowFormat::kInt4;
  settings.ones = false;
  const ReplayOutcome outcome = Outcome(batches, settings).value();
  const Counters& own = outcome.counters;
  const NetworkCounts& net = outcome.traffic;
  EXPECT_EQ(net.pushes.bytes + net.reads.bytes, own.row_bytes_out + own.metadata_bytes_out);
  EXPECT_EQ(net.replies.bytes, own.row_bytes_in + own.metadata_bytes_in);
  EXPECT_EQ(net.replies.parts, net.pushes.parts + net.reads.parts);
}

TEST(ReplayTest, TwiceTheSameIsEqual) {
  Random random(9);
  std::vector<std::vector<Key>> batches(60);
  for (auto& batch : batches) {
    for (size_t i = 0; i < 20; ++i) batch.push_back(static_cast<Key>(random.Below(100)));
  }
  ReplaySettings settings = Settings(2, 20, 3);
  settings.window = 4;
  const ReplayOutcome first = Outcome(batches, settings).value();
  const ReplayOutcome second = Outcome(batches, settings).value();
  EXPECT_EQ(first.counters.miss_pull, second.counters.miss_pull);
  EXPECT_EQ(first.counters.evict_push, second.counters.evict_push);
  EXPECT_EQ(first.traffic.replies.bytes, second.traffic.replies.bytes);
}

TEST(ReplayTest, AStreamThatIsTooShortIsRefused) {
  ReplaySettings settings = Settings(2, 20, 3);
  settings.warm_steps = 2;
  EXPECT_TRUE(Fails(Outcome(Repeated({{1}, {2}}, 2), settings), Code::kInvalidArgument,
                    "4 batches: with 2 workers these are 2 steps"));
}

}  // namespace
}  // namespace het::testing::replay_test
