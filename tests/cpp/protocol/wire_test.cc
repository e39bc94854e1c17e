// The clock protocol with rows and updates that are rounded on their way.
//
// Counting worlds hold small integers, which every format can say: there nothing is ever rounded, so
// everything is as it is with float32, bit for bit. With other optimizers rounding shows, and what must hold
// is that it takes nothing away for good: what is sent adds up.
#include "tests/cpp/testing/world/schedule.h"

namespace het::testing {
namespace {

RowFormat FormatOf(const WorldConfig& c) { return c.seed % 2 == 0 ? RowFormat::kInt8 : RowFormat::kFloat16; }

TEST(ProtocolWire, IntegersAreAsEver) {
  RunSchedules(600, 60, false, [](WorldConfig* c) {
    c->workers = 1 + static_cast<uint32_t>(c->seed % 3);
    c->cache.wire = FormatOf(*c);
    c->faults = c->seed % 3 == 0 ? Faults::Some(0.05) : Faults();
  });
}

TEST(ProtocolWire, RestartsLoseNothing) {
  RunSchedules(300, 60, true, [](WorldConfig* c) {
    c->workers = 1 + static_cast<uint32_t>(c->seed % 3);
    c->cache.wire = FormatOf(*c);
    c->faults = Faults::Some(0.03);
    c->client.durability = Durability::kCheckpoint;
  });
}

TEST(ProtocolWire, FailoversToAReplicaLoseNothing) {
  RunSchedules(200, 60, true, [](WorldConfig* c) {
    c->workers = 1 + static_cast<uint32_t>(c->seed % 3);
    c->cache.wire = FormatOf(*c);
    c->faults = Faults::Some(0.03);
    c->client.durability = Durability::kReplicated;
  });
}

// One worker whose cache holds every row and never replaces one: after a flush the store has all that it has
// ticked, as nearly as with float32, however coarse the format is. Reads without training may get rows from
// the store, rounded.
TEST(ProtocolWire, WhatRoundingKeepsBackIsSent) {
  for (const std::string& name : Optimizer::Names()) {
    SCOPED_TRACE(name);
    RunSchedules(150, 60, false, [&](WorldConfig* c) {
      c->optimizer = name;
      c->dim = 1 + static_cast<uint32_t>(c->seed % 7);
      c->cache.wire = FormatOf(*c);
      c->read_tolerance = c->cache.wire == RowFormat::kInt8 ? 0.03f : 0.001f;
      c->cache.pull_bound = kUnbounded;
      c->cache.capacity = 1000;
      c->cache.admit_after = 1;
      c->faults = c->seed % 3 == 0 ? Faults::Some(0.05) : Faults();
    });
  }
}

// Rows come and go: each time they are rounded. The distance to one process is of the size of the format's
// step, and does not grow with the number of steps.
TEST(ProtocolWire, WhatRoundingLosesIsSmall) {
  for (const std::string& name : Optimizer::Names()) {
    SCOPED_TRACE(name);
    RunSchedules(100, 60, true, [&](WorldConfig* c) {
      c->optimizer = name;
      c->dim = 1 + static_cast<uint32_t>(c->seed % 7);
      c->cache.wire = FormatOf(*c);
      c->tolerance = c->cache.wire == RowFormat::kInt8 ? 0.06f : 0.004f;
      c->faults = Faults::Some(0.02);
      c->client.durability = Durability::kCheckpoint;
    });
  }
}

// How much there is to round, so that the tests above are about something.
TEST(ProtocolWire, RowsAreRoundedAndSmall) {
  for (const RowFormat wire : {RowFormat::kFloat32, RowFormat::kFloat16, RowFormat::kInt8}) {
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
    EXPECT_EQ(counters.row_bytes_out, pushed * LeastRowBytes(wire, 16, 32));
    // Rows that nobody has written yet do not travel.
    EXPECT_EQ(counters.row_bytes_in % LeastRowBytes(wire, 16, 32), 0u);
    EXPECT_GT(counters.row_bytes_in, 0u);
    EXPECT_EQ(counters.dropped_remainders > 0, wire != RowFormat::kFloat32);
  }
}

// A row that comes anew, with another worker's tick, gets the remainder on top: that is no tick, but it was
// never sent.
TEST(ProtocolWire, ARefreshedRowKeepsTheRemainder) {
  WorldConfig c;
  c.workers = 2;
  c.optimizer = "adagrad";
  c.dim = 8;
  c.cache.wire = RowFormat::kInt8;
  c.cache.pull_bound = c.cache.push_bound = 0;
  World world(c);
  auto tick = [&](size_t w) {
    auto step = world.NewStep({{5}});
    ASSERT_TRUE(world.Read(w, step.get()).ok());
    ASSERT_TRUE(world.Write(w, step.get()).ok());
  };
  tick(0);
  tick(1);
  const TableKey key{world.schema(0)->id(), 5};
  TableCache* cache = world.client(0).cache(key.first);
  const uint32_t line = cache->lines().Find(5);
  ASSERT_TRUE(cache->HasUnsent(line));
  std::vector<float> expected = world.ServerRow(key);
  RoundRow({RowFormat::kInt8}, 8, 16, expected.data(), expected.data());
  for (size_t i = 0; i < 16; ++i) expected[i] += cache->UpdateOf(line)[i];
  auto step = world.NewStep({{5}});
  ASSERT_TRUE(world.Read(0, step.get()).ok());
  const float* row = cache->lines().data(line);
  EXPECT_EQ(std::vector<float>(row, row + 16), expected);
  EXPECT_EQ(cache->base(line), 2);
}

// A client that lost its remainders would show it here: pushes alone, each smaller than a step of the format.
TEST(ProtocolWire, AFlushSendsRemaindersWithoutATick) {
  WorldConfig c;
  c.optimizer = "momentum";
  c.dim = 8;
  c.cache.wire = RowFormat::kInt8;
  c.cache.push_bound = 0;
  World world(c);
  for (int step = 0; step < 10; ++step) {
    auto one = world.NewStep({{5}});
    ASSERT_TRUE(world.Read(0, one.get()).ok());
    ASSERT_TRUE(world.Write(0, one.get()).ok());
  }
  const TableKey key{world.schema(0)->id(), 5};
  TableCache* cache = world.client(0).cache(key.first);
  const uint32_t line = cache->lines().Find(5);
  ASSERT_TRUE(cache->HasUnsent(line));
  ASSERT_EQ(cache->pending(line), 0u);
  const int64_t clock = world.ServerClock(key);
  ASSERT_TRUE(world.Flush(0).ok());
  EXPECT_FALSE(cache->HasUnsent(line));
  EXPECT_EQ(world.ServerClock(key), clock);
  world.CheckDrained();
  EXPECT_EQ(world.FirstError(), "");
}

// What was never sent is not forgotten with the lines that are clean.
TEST(ProtocolWire, ForgettingCleanLinesKeepsRemainders) {
  WorldConfig c;
  c.optimizer = "momentum";
  c.dim = 8;
  c.cache.wire = RowFormat::kInt8;
  c.cache.push_bound = 0;
  World world(c);
  for (int step = 0; step < 10; ++step) {
    auto one = world.NewStep({{5}});
    ASSERT_TRUE(world.Read(0, one.get()).ok());
    ASSERT_TRUE(world.Write(0, one.get()).ok());
  }
  auto read = world.NewStep({{6}});
  ASSERT_TRUE(world.Read(0, read.get()).ok());
  world.client(0).Unpin(read->token);
  TableCache* cache = world.client(0).cache(world.schema(0)->id());
  world.client(0).ForgetClean();
  EXPECT_EQ(cache->lines().Find(6), kNoRow);
  ASSERT_TRUE(world.Flush(0).ok());
  world.CheckDrained();
  EXPECT_EQ(world.FirstError(), "");
}

}  // namespace
}  // namespace het::testing
