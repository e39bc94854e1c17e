// What a push takes of an update, and what it leaves, where rows travel in a smaller format.

#include <cmath>
#include <limits>
#include <numeric>

#include "het_tf/core/cache/table_cache.h"
#include "tests/testing/optimizer_of.h"
#include "tests/testing/packed_rows.h"
#include "tests/testing/random.h"
#include "tests/testing/table_specs.h"

namespace het::testing {
namespace {

struct Taken {
  Vector<uint32_t> ticks;
  Vector<float> wire;
  size_t bytes;
};

class TableCacheWireTest : public ::testing::Test {
 protected:
  void Make(RowFormat wire, const std::string& optimizer = "sgd", uint32_t dim = 16, size_t capacity = 8) {
    TableSpec spec = NewSpec("t", dim, OptimizerOf(optimizer));
    CacheConfig config;
    config.capacity = capacity;
    config.wire = wire;
    cache_ = std::make_unique<TableCache>(TableSchema::Create(spec).value(), config, 3);
  }
  uint32_t Insert(Key key) {
    const uint32_t line = cache_->Insert(key, cache_->lines().Hash(key), 0, /*transient=*/false);
    cache_->schema()->InitRow(key, cache_->lines().data(line));
    return line;
  }
  // A tick with a random gradient of this size.
  void Tick(uint32_t line, float size = 1) {
    std::vector<float> g(cache_->schema()->dim());
    for (float& x : g) x = size * static_cast<float>(random_.Unit() - 0.5);
    cache_->schema()->Tick(0.1f, g.data(), cache_->lines().clock(line), cache_->lines().data(line),
                           cache_->unsent().UpdateOf(line));
    cache_->lines().AddTick(line);
  }
  Taken Take(uint32_t line) {
    PackedUpdates taken;
    taken.format = cache_->policy().push_format();
    cache_->unsent().TakeUpdate(line, &taken);
    return Read(taken);
  }
  Taken TakeQueue() {
    PackedUpdates taken;
    taken.format = cache_->policy().push_format();
    PackedUpdates* const to[] = {&taken};
    cache_->unsent().TakeQueue(Layout(1, 3), {to, 1});
    return Read(taken);
  }
  Taken Read(const PackedUpdates& taken) {
    const TableSchema& schema = *cache_->schema();
    return {taken.ticks, FloatsOf(taken, schema.dim(), schema.optimizer().wire_floats()), taken.rows.size()};
  }
  // The part of the line's update that travels.
  std::vector<float> Update(uint32_t line) {
    const Optimizer& optimizer = cache_->schema()->optimizer();
    const float* update = cache_->unsent().UpdateOf(line);
    return {update + optimizer.wire_begin(), update + optimizer.row_floats()};
  }

  Random random_{11};
  std::unique_ptr<TableCache> cache_;
};

TEST_F(TableCacheWireTest, WhatAPushRoundsAwayStays) {
  for (const std::string& optimizer : Optimizer::Names()) {
    for (RowFormat wire : {RowFormat::kFloat16, RowFormat::kInt8, RowFormat::kInt4}) {
      Make(wire, optimizer);
      const uint32_t line = Insert(1);
      int age = 0;
      for (int push = 0; push < 130; ++push) {
        for (int tick = 0; tick <= push % 3; ++tick, ++age) Tick(line);
        const std::vector<float> before = Update(line);
        const Taken taken = Take(line);
        EXPECT_EQ(taken.ticks, Vector<uint32_t>({static_cast<uint32_t>(push % 3 + 1)}));
        EXPECT_EQ(cache_->lines().pending(line), 0u);
        ASSERT_TRUE(cache_->unsent().has_update(line)) << optimizer;
        ASSERT_TRUE(cache_->unsent().Any(line));
        const std::vector<float> after = Update(line);
        for (size_t i = 0; i < before.size(); ++i) {
          const float inexact =
              age < 200 ? 0 : 1e-6f * std::fabs(taken.wire[i]);  // 2 bits may be much too large
          ASSERT_NEAR(taken.wire[i] + after[i], before[i], inexact) << optimizer << " at " << i;
        }
        // It is small on its way, and smaller where the row is old.
        const RowFormat format = cache_->policy().push_format();
        const size_t fine = format == RowFormat::kInt4 && age < 200 ? 4 : 0;
        EXPECT_EQ(taken.bytes, LeastRowBytes(format, 16, before.size()) + fine) << optimizer;
      }
    }
  }
}

TEST_F(TableCacheWireTest, TicksAndBaseAreAsEver) {
  Make(RowFormat::kInt8);
  const uint32_t line = Insert(1);
  cache_->lines().base(line) = 10;
  Tick(line);
  Tick(line);
  Take(line);
  EXPECT_EQ(cache_->lines().base(line), 12);
  EXPECT_EQ(cache_->unsent().keys(), 0u);  // keys with ticks
  Tick(line);
  EXPECT_EQ(Take(line).ticks, Vector<uint32_t>({1}));
  EXPECT_EQ(cache_->lines().base(line), 13);
}

TEST_F(TableCacheWireTest, WhatTheFormatCanSayLeavesNothing) {
  for (RowFormat wire : {RowFormat::kFloat32, RowFormat::kFloat16, RowFormat::kInt8}) {
    Make(wire);
    const uint32_t line = Insert(1);
    float* update = cache_->unsent().UpdateOf(line);
    std::iota(update, update + 16, -8.0f);
    cache_->lines().AddTick(line);
    const Taken taken = Take(line);
    for (int i = 0; i < 16; ++i) EXPECT_EQ(taken.wire[static_cast<size_t>(i)], static_cast<float>(i - 8));
    EXPECT_FALSE(cache_->unsent().has_update(line)) << RowFormatName(wire);
  }
}

// The value of `sent` is one of integers of the format, each the one below or above; slots are 16-bit floats.
void ExpectRoundedAtRandom(RowFormat format, const Vector<float>& sent, const std::vector<float>& all) {
  const float steps = format == RowFormat::kInt4 ? 3.5f : 63;  // between 0 and the largest, at least
  const float largest = std::fabs(*std::max_element(
      all.begin(), all.begin() + 16, [](float a, float b) { return std::fabs(a) < std::fabs(b); }));
  std::vector<float> again(all.size()), halves(all.size());
  RoundRow({format}, 16, all.size(), sent.data(), again.data());
  RoundRow({RowFormat::kFloat16}, 16, all.size(), all.data(), halves.data());
  bool any = false;
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(again[i], sent[i]);
    if (i < 16) {
      EXPECT_LT(std::fabs(sent[i] - all[i]), largest / steps);
    } else {
      EXPECT_EQ(sent[i], halves[i]);
    }
    any |= sent[i] != all[i];
  }
  EXPECT_TRUE(any);
}

TEST_F(TableCacheWireTest, ARowThatLeavesIsRoundedAtRandom) {
  Make(RowFormat::kInt4, "adagrad", 16, 0);
  const uint32_t line = Insert(1);
  Tick(line);
  Take(line);
  Tick(line);
  const std::vector<float> all = Update(line);
  cache_->MakeRoom(0);
  ASSERT_EQ(cache_->unsent().queue().size(), 1u);
  const Taken taken = TakeQueue();
  EXPECT_EQ(taken.ticks, Vector<uint32_t>({1}));
  ExpectRoundedAtRandom(RowFormat::kInt4, taken.wire, all);
  EXPECT_EQ(cache_->counters().dropped_remainders, 1u);
}

TEST_F(TableCacheWireTest, ACleanLineTakesItsRemainderAlong) {
  Make(RowFormat::kFloat16, "sgd", 16, 2);
  for (Key key = 1; key <= 2; ++key) {
    const uint32_t line = Insert(key);
    Tick(line);
    Take(line);
  }
  cache_->MakeRoom(2);
  EXPECT_EQ(cache_->lines().size(), 0u);
  EXPECT_EQ(cache_->unsent().queue().size(), 0u);
  EXPECT_EQ(cache_->counters().dropped_remainders, 2u);
  // One that has none is not counted.
  Insert(3);
  cache_->unsent().UpdateOf(cache_->lines().Find(3));
  cache_->MakeRoom(2);
  EXPECT_EQ(cache_->counters().dropped_remainders, 2u);
}

// Rows of the store travel in 8 bits where updates have 4.
TEST_F(TableCacheWireTest, FourBitsAreForUpdates) {
  Make(RowFormat::kInt4);
  EXPECT_EQ(cache_->policy().row_format(), RowFormat::kInt5);
  EXPECT_EQ(cache_->policy().push_format(), RowFormat::kInt4);
}

TEST_F(TableCacheWireTest, ADerivedValueIsNoneSoItsSlotsHave16Bits) {
  Make(RowFormat::kInt8, "ftrl");
  EXPECT_EQ(cache_->policy().push_format(), RowFormat::kFloat16);
  Make(RowFormat::kFloat32, "ftrl");
  EXPECT_EQ(cache_->policy().push_format(), RowFormat::kFloat32);
  Make(RowFormat::kInt8, "adam");
  EXPECT_EQ(cache_->policy().push_format(), RowFormat::kInt8);
}

TEST_F(TableCacheWireTest, RowsOfOneNumberTravelAsTheyAre) {
  Make(RowFormat::kInt8, "ftrl", 1);
  EXPECT_EQ(cache_->policy().row_format(), RowFormat::kFloat32);
  EXPECT_EQ(cache_->policy().push_format(), RowFormat::kFloat32);
  const uint32_t line = Insert(1);
  Tick(line);
  const std::vector<float> all = Update(line);
  const Taken taken = Take(line);
  EXPECT_EQ(std::vector<float>(taken.wire.begin(), taken.wire.end()), all);
  EXPECT_FALSE(cache_->unsent().has_update(line));
}

// row_format.h takes what follows the last whole block for single floats, and leaves them alone: those of a
// learning rate and of a count must never be rounded.
TEST_F(TableCacheWireTest, SlotsOfOneFloatAreLastAndFewerThanDim) {
  for (const std::string& name : Optimizer::Names()) {
    Make(RowFormat::kInt8, name, 2);
    const Optimizer& optimizer = cache_->schema()->optimizer();
    size_t singles = 0;
    for (const SlotSpec& slot : optimizer.slots()) {
      EXPECT_FALSE(slot.per_element && singles > 0) << name;
      singles += !slot.per_element;
      EXPECT_TRUE(slot.merge != Merge::kLast || !slot.per_element) << name;
    }
    EXPECT_LT(singles, 2u) << name;
  }
}

TEST_F(TableCacheWireTest, OfWhatIsNotFiniteNothingIsLeft) {
  for (RowFormat wire : {RowFormat::kFloat16, RowFormat::kInt8, RowFormat::kInt4}) {
    Make(wire, "sgd", 2);
    const uint32_t line = Insert(1);
    cache_->unsent().UpdateOf(line)[0] = std::numeric_limits<float>::infinity();
    cache_->unsent().UpdateOf(line)[1] = std::numeric_limits<float>::quiet_NaN();
    cache_->lines().AddTick(line);
    const Taken taken = Take(line);
    EXPECT_TRUE(std::isinf(taken.wire[0]) && std::isnan(taken.wire[1]));
    EXPECT_FALSE(cache_->unsent().has_update(line));
  }
}

// Averages of squares, at a server to which two workers push: a term that was rounded up would be corrected
// downwards by its worker's next push, when the other's ticks have made the average smaller than the
// correction. Then a root would be taken of a negative number.
TEST_F(TableCacheWireTest, AveragesOfSquaresAreNeverNegative) {
  const struct {
    const char* optimizer;
    size_t slot;  // in units of dim
    int ticks;    // after which hardly anything is left of what was there
  } kAverages[] = {{"rmsprop", 1, 1000}, {"adam", 2, 60000}};
  for (const auto& average : kAverages) {
    for (RowFormat wire : {RowFormat::kFloat16, RowFormat::kInt8, RowFormat::kInt4}) {
      Make(wire, average.optimizer, 32);
      const uint32_t mine = Insert(1);
      const uint32_t other = Insert(2);
      const TableSchema& schema = *cache_->schema();
      std::vector<float> server(schema.row_floats());
      schema.InitRow(1, server.data());
      auto push = [&](uint32_t line) {
        const Taken taken = Take(line);
        schema.optimizer().MergeWire(taken.wire.data(), taken.ticks[0], server.data());
      };
      Tick(mine);
      push(mine);
      for (int i = 0; i < average.ticks; ++i) Tick(other, 0);
      push(other);
      Tick(mine, 1e-9f);
      push(mine);
      for (size_t i = 32 * average.slot; i < 32 * (average.slot + 1); ++i) {
        ASSERT_GE(server[i], 0) << average.optimizer;
      }
    }
  }
}

}  // namespace
}  // namespace het::testing
