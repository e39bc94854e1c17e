// The clock protocol with rounding of rows and updates on the wire.
//
// schedules_test.cc has its random schedules (Rounded...). Rounding must lose nothing for good: the sent
// updates add up.
#include <gtest/gtest.h>

#include "tests/testing/packed_rows.h"
#include "tests/testing/world/world.h"

namespace het::testing {
namespace {

// Each worker's updates leave at once, and are smaller than a step of the format.
WorldConfig OfSmallUpdates() {
  WorldConfig c;
  c.optimizer = "momentum";
  c.dim = 8;
  c.cache.wire = RowFormat::kInt8;
  c.cache.push_bound = 0;
  return c;
}

// Worker w's step on key 5.
void Tick(World* world, size_t w) {
  auto step = world->NewStep({{5}});
  ASSERT_TRUE(world->Read(w, step.get()).ok());
  ASSERT_TRUE(world->Write(w, step.get()).ok());
}

// A store that keeps rows in 16 or 8 bits rounds them at each push, and one worker never hears of it.
TEST(ProtocolWire, AWorkersCopyIsWhatItsStoreHas) {
  for (const Stored stored : {Stored::kBfloat16, Stored::kInt8}) {
    for (const RowFormat wire : {RowFormat::kFloat32, RowFormat::kFloat16}) {
      WorldConfig c;
      c.optimizer = "row_wise_adagrad";
      c.dim = 8;
      c.stored = stored;
      c.cache.wire = wire;
      c.cache.pull_bound = c.cache.push_bound = 0;
      c.tolerance = 1;  // of a process that does not round
      World world(c);
      for (int i = 0; i < 50; ++i) Tick(&world, 0);
      EXPECT_EQ(world.FirstError(), "");
      ASSERT_TRUE(world.Flush(0).ok());
      const TableKey key{world.schema(0)->id(), 5};
      const TableCache& cache = *world.client(0).cache(key.first);
      const float* const copy = cache.lines().data(cache.lines().Find(5));
      const std::vector<float> row = world.ServerRow(key);
      for (size_t k = 0; k < row.size(); ++k) EXPECT_FLOAT_EQ(copy[k], row[k]) << StoredName(stored) << k;
    }
  }
}

// Checks that rows are really rounded, so that the tests are not vacuous.
TEST(ProtocolWire, RowsAreRoundedAndSmall) {
  for (const RowFormat wire :
       {RowFormat::kFloat32, RowFormat::kFloat16, RowFormat::kInt8, RowFormat::kInt4}) {
    WorldConfig c;
    c.optimizer = "adagrad";
    c.dim = 16;
    c.cache.wire = wire;
    c.cache.capacity = 2;
    c.cache.pull_bound = c.cache.push_bound = 0;
    c.tolerance = 1;
    World world(c);
    const std::vector<std::vector<Key>> rows = {{1, 2}, {3, 4}, {1, 3}, {2, 4}};
    for (int step = 0; step < 8; ++step) {
      auto one = world.NewStep({rows[static_cast<size_t>(step % 4)]});
      ASSERT_TRUE(world.Read(0, one.get()).ok());
      ASSERT_TRUE(world.Write(0, one.get()).ok());
    }
    EXPECT_EQ(world.FirstError(), "");
    const Counters& counters = world.client(0).Stats(world.schema(0)->id());
    const uint64_t pushed = counters.bound_push + counters.evict_push;
    EXPECT_EQ(pushed, 16u);
    const size_t young = wire == RowFormat::kInt4 ? 4 : 0;  // more bytes than an old row's
    EXPECT_EQ(counters.row_bytes_out, pushed * (LeastRowBytes(wire, 16, 32) + young));
    // Rows without ticks do not travel.
    const RowFormat pulled = wire == RowFormat::kInt4 ? RowFormat::kInt5 : wire;
    const size_t least = LeastRowBytes(pulled, 16, 32);
    const size_t exact = wire == RowFormat::kInt4 ? 6 : 0;  // more bytes, of a row that is exact in 8 bits
    EXPECT_TRUE(counters.row_bytes_in % least == 0 || counters.row_bytes_in % (least + exact) == 0);
    EXPECT_GT(counters.row_bytes_in, 0u);
    EXPECT_EQ(counters.dropped_remainders > 0, wire != RowFormat::kFloat32);
  }
}

// A row that is fetched again, with another worker's tick, keeps the remainder on top: it is not a tick, but
// it was never sent.
TEST(ProtocolWire, ARefreshedRowKeepsTheRemainder) {
  WorldConfig c;
  c.workers = 2;
  c.optimizer = "adagrad";
  c.dim = 8;
  c.cache.wire = RowFormat::kInt8;
  c.cache.pull_bound = c.cache.push_bound = 0;
  World world(c);
  Tick(&world, 0);
  Tick(&world, 1);
  const TableKey key{world.schema(0)->id(), 5};
  TableCache* cache = world.client(0).cache(key.first);
  const uint32_t line = cache->lines().Find(5);
  ASSERT_TRUE(cache->unsent().Any(line));
  std::vector<float> expected = world.ServerRow(key);
  RoundRow({RowFormat::kInt8}, 8, 16, expected.data(), expected.data());
  for (size_t i = 0; i < 16; ++i) expected[i] += cache->unsent().UpdateOf(line)[i];
  auto step = world.NewStep({{5}});
  ASSERT_TRUE(world.Read(0, step.get()).ok());
  const float* row = cache->lines().data(line);
  EXPECT_EQ(std::vector<float>(row, row + 16), expected);
  EXPECT_EQ(cache->lines().base(line), 2);
}

// Dropping clean lines keeps their unsent remainders.
TEST(ProtocolWire, ForgettingCleanLinesKeepsRemainders) {
  World world(OfSmallUpdates());
  for (int step = 0; step < 10; ++step) Tick(&world, 0);
  auto read = world.NewStep({{6}});
  ASSERT_TRUE(world.Read(0, read.get()).ok());
  for (auto& [where, part] : read->parts()) part.touched.assign(part.touched.size(), 0);
  ASSERT_TRUE(world.Write(0, read.get()).ok());
  TableCache* cache = world.client(0).cache(world.schema(0)->id());
  world.client(0).ForgetClean();
  EXPECT_EQ(cache->lines().Find(6), kNoRow);
  ASSERT_TRUE(world.Flush(0).ok());
  world.CheckDrained();
  EXPECT_EQ(world.FirstError(), "");
}

}  // namespace
}  // namespace het::testing
