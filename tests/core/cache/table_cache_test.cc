// One table's cache: lines, holds, updates, eviction and the write-back queue, without any protocol.
#include "het_tf/core/cache/table_cache.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/testing/fits_in.h"
#include "tests/testing/held_lines.h"
#include "tests/testing/table_specs.h"

namespace het::testing {
namespace {

CacheConfig Capacity(size_t capacity) {
  CacheConfig config;
  config.capacity = capacity;
  return config;
}

class TableCacheTest : public ::testing::Test {
 protected:
  void Make(const CacheConfig& config) {
    cache_ = std::make_unique<TableCache>(NewSchema("t", 2), config, 3);
    cache_->BeginLookup(1);
  }
  uint32_t Insert(Key key, bool transient = false) {
    const uint32_t line = cache_->Insert(key, cache_->lines().Hash(key), 0, transient);
    std::fill_n(cache_->lines().data(line), cache_->lines().row_floats(), 0.0f);
    return line;
  }
  uint32_t Find(Key key) { return cache_->lines().Find(key); }
  void Tick(uint32_t line, float change) {
    cache_->unsent().UpdateOf(line)[0] += change;
    cache_->lines().data(line)[0] += change;
    cache_->lines().AddTick(line);
  }
  std::unique_ptr<TableCache> cache_;
};

TEST_F(TableCacheTest, HeldLinesAreNoVictims) {
  Make(Capacity(2));
  for (Key key = 1; key <= 4; ++key) cache_->marks().Hold(Insert(key), cache_->numbers().Until(1));
  cache_->BeginLookup(2);
  cache_->marks().Hold(Find(3), cache_->numbers().Until(2));  // by both steps
  cache_->MakeRoom(0);
  EXPECT_EQ(cache_->lines().size(), 4u);
  cache_->numbers().End(1);
  cache_->MakeRoom(0);
  EXPECT_EQ(cache_->lines().size(), 2u);
  EXPECT_NE(Find(3), kNoRow);
  EXPECT_EQ(HeldLines(*cache_), 1u);
  for (uint64_t step = 3; step <= LookupNumbers::kSteps + 1; ++step) cache_->BeginLookup(step);
  EXPECT_EQ(HeldLines(*cache_), 1u);
  cache_->BeginLookup(LookupNumbers::kSteps + 2);
  EXPECT_EQ(HeldLines(*cache_), 0u) << "the second step is none of the newest any more";
  cache_->numbers().End(LookupNumbers::kSteps + 2);
  cache_->marks().Hold(Find(3), cache_->numbers().Until(1));
  EXPECT_EQ(HeldLines(*cache_), 1u)
      << "the gradient of an old step has fetched it, and the newest one's has come";
}

TEST_F(TableCacheTest, NumbersWrapAround) {
  LookupNumbers numbers;
  EXPECT_EQ(numbers.Left(numbers.passed()), 0u);
  EXPECT_EQ(numbers.Left(numbers.newest()), 1u);
  EXPECT_EQ(numbers.Left(numbers.farthest()), LookupNumbers::kFarthest + 1);
  numbers.Begin(7);
  EXPECT_EQ(numbers.HeldBy(7), numbers.newest() + LookupNumbers::kSteps - 1);
  EXPECT_EQ(numbers.Left(numbers.HeldBy(8)), 0u);
}

// Would find a victim that a planned lookup uses, and a planned one that is used sooner than another.
TEST_F(TableCacheTest, LinesOfPlannedLookupsGoAfterAllOthersTheLastUsedFirst) {
  Make(Capacity(2));
  for (Key key = 1; key <= 5; ++key) Insert(key);
  cache_->policy().SetNextUse(Find(1), 7);  // the policy's first victim
  cache_->policy().SetNextUse(Find(2), 9);
  cache_->policy().SetNextUse(Find(3), 8);
  cache_->policy().SetNextUse(Find(3), 6);
  cache_->policy().SetNextUse(Find(3), 10);  // the first of them counts
  cache_->MakeRoom(0);
  EXPECT_EQ(Find(4), kNoRow);
  EXPECT_EQ(Find(5), kNoRow);
  EXPECT_EQ(Find(2), kNoRow);
  EXPECT_NE(Find(1), kNoRow);
  EXPECT_NE(Find(3), kNoRow);
  // The lookup of plan 6 is here, and nobody has planned another use of row 3.
  cache_->policy().set_planned(6);
  cache_->MakeRoom(1);
  EXPECT_EQ(Find(3), kNoRow);
  EXPECT_NE(Find(1), kNoRow);
}

TEST_F(TableCacheTest, ALineThatCameAnewIsNotPlanned) {
  Make(Capacity(1));
  cache_->policy().SetNextUse(Insert(1), 7);
  cache_->Drop(Find(1));
  Insert(2);
  Insert(3);
  cache_->policy().SetNextUse(Find(3), 8);
  cache_->MakeRoom(0);
  EXPECT_EQ(Find(2), kNoRow);
}

// A transient line is dropped (not evicted), its number goes to another transient line, which is held: the
// one line must not count twice, or a cache with room evicts.
TEST_F(TableCacheTest, ADroppedTransientLineIsForgotten) {
  Make(Capacity(4));
  const uint32_t first = Insert(1, true);
  cache_->Drop(first);
  const uint32_t again = Insert(2, true);
  ASSERT_EQ(first, again);
  cache_->marks().Hold(again, cache_->numbers().Until(1));
  cache_->DropTransient();
  Insert(3);
  EXPECT_EQ(cache_->marks().resident(), 1u);
  cache_->numbers().End(1);
  cache_->DropTransient();
  EXPECT_EQ(Find(2), kNoRow);
  EXPECT_NE(Find(3), kNoRow);
}

TEST_F(TableCacheTest, TheLineOfADroppedTransientOneIsAResidentNow) {
  Make(Capacity(4));
  cache_->Drop(Insert(1, true));
  Insert(2);
  cache_->DropTransient();
  EXPECT_NE(Find(2), kNoRow);
}

TEST_F(TableCacheTest, UpdatesAreTakenBack) {
  Make(Capacity(4));
  const auto tick_and_take = [&](Key first) {
    for (Key key = first; key < first + 20000; ++key) {
      Tick(Insert(key), 1);
      cache_->MakeRoom(0);
      PackedUpdates taken;
      PackedUpdates* const to[] = {&taken};
      cache_->unsent().TakeQueue(Layout(1, 3), {to, 1});
    }
  };
  tick_and_take(0);
  const size_t before = AllocatedBytes();
  tick_and_take(100000);
  EXPECT_EQ(AllocatedBytes(), before);
}

// Memory ends anywhere: every tick is in a line or in the queue, once.
TEST_F(TableCacheTest, OutOfMemoryInAnEviction) {
  for (size_t room = 0; room < 4000; room += 8) {
    Make(Capacity(0));
    for (Key key = 0; key < 50; ++key) Tick(Insert(key, key % 3 == 0), 1);
    FitsIn(room, [&] {
      cache_->DropTransient();
      cache_->MakeRoom(0);
    });
    for (Key key = 0; key < 50; ++key) {
      const uint32_t line = Find(key);
      const WriteBackQueue::Queued* queued = cache_->unsent().queue().Find(key);
      ASSERT_NE(line == kNoRow, queued == nullptr) << room;
      ASSERT_EQ(line == kNoRow ? queued->ticks : cache_->lines().pending(line), 1u) << room;
    }
    cache_->DropTransient();
    cache_->MakeRoom(0);
    EXPECT_EQ(cache_->lines().size(), 0u);
    EXPECT_EQ(cache_->unsent().queue().size(), 50u);
  }
}

}  // namespace
}  // namespace het::testing
