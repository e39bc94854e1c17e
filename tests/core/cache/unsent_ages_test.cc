// Ages of unsent ticks: which rows are due, and when, on a clock that the test sets.
#include "het_tf/core/cache/unsent_ages.h"

#include <gmock/gmock.h>

#include "het_tf/core/cache/table_cache.h"
#include "tests/testing/table_specs.h"

namespace het::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double kAge = 10;

class UnsentAgesTest : public ::testing::Test {
 protected:
  void Make(size_t capacity = 100, RowFormat wire = RowFormat::kFloat32) {
    CacheConfig config;
    config.capacity = capacity;
    config.wire = wire;
    config.push_max_age = kAge;
    cache_ = std::make_unique<TableCache>(NewSchema("t", 2), config, 3);
  }
  UnsentAges& ages() { return *cache_->ages(); }
  // A tick of the row at `now`, by a step that has ended.
  uint32_t Tick(Key key, double now, float change = 1) {
    uint32_t line = cache_->lines().Find(key);
    if (line == kNoRow) {
      line = cache_->Insert(key, cache_->lines().Hash(key), 0, /*transient=*/false);
      const WriteBackQueue::Queued* const queued = cache_->unsent().queue().Find(key);
      if (queued != nullptr) cache_->unsent().Restore(line, *queued);
    }
    float* const update = cache_->unsent().UpdateOf(line);
    if (cache_->lines().pending(line) == 0) ages().Add(line, now);
    update[0] += change;
    cache_->lines().AddTick(line);
    return line;
  }
  void Send(uint32_t line) {
    PackedUpdates taken;
    taken.format = cache_->policy().push_format();
    cache_->unsent().TakeUpdate(line, &taken);
  }
  std::vector<Key> Due(double time) {
    std::vector<Key> keys;
    for (uint32_t line : ages().Due(time).lines) keys.push_back(cache_->lines().meta(line).key);
    return keys;
  }
  std::unique_ptr<TableCache> cache_;
};

// Defect: rows of a step are dropped as stale before the step ticks them, and never leave.
TEST_F(UnsentAgesTest, AStepOfManyRowsKeepsAllOfThem) {
  constexpr Key kRows = 5000;
  Make(kRows);
  std::vector<uint32_t> lines;
  for (Key key = 0; key < kRows; ++key) {
    lines.push_back(cache_->Insert(key, cache_->lines().Hash(key), 0, /*transient=*/false));
    cache_->unsent().UpdateOf(lines.back());
    ages().Add(lines.back(), 100);  // of all rows, before the first tick
  }
  for (uint32_t line : lines) cache_->lines().AddTick(line);
  EXPECT_EQ(Due(110).size(), lines.size());
}

// Defects: a row that was sent keeps its age, or is named twice in one push.
TEST_F(UnsentAgesTest, ARowThatWasSentBeginsAnew) {
  Make();
  const uint32_t line = Tick(1, 100);
  Send(line);
  EXPECT_THAT(Due(110), IsEmpty());
  Tick(1, 100);
  EXPECT_THAT(Due(110), ElementsAre(1)) << "in the same instant";
  Send(line);
  Tick(2, 103);  // takes the update that row 1 had
  Tick(1, 104);
  EXPECT_THAT(Due(113), ElementsAre(2));
  EXPECT_THAT(Due(114), ElementsAre(2, 1));
}

// Defect: a row whose remainder waits is sent again and again without a tick.
TEST_F(UnsentAgesTest, ARemainderHasNoAge) {
  Make(100, RowFormat::kInt4);
  const uint32_t line = Tick(1, 100, 1.0f);
  cache_->unsent().UpdateOf(line)[1] = 0.013f;
  Send(line);
  ASSERT_TRUE(cache_->unsent().has_update(line));
  EXPECT_THAT(Due(1000), IsEmpty());
  Tick(1, 200);
  EXPECT_THAT(Due(209), IsEmpty());
  EXPECT_THAT(Due(210), ElementsAre(1));
}

// Defect: a row that its push bound sends at each step leaves an entry behind each time, for as long as the
// age.
TEST_F(UnsentAgesTest, StaleEntriesTakeLittleMemory) {
  Make();
  Tick(7, 0);
  for (int i = 0; i < 100000; ++i) Send(Tick(i % 3, 1 + i * 1e-6));
  EXPECT_LE(ages().entries(), 1024u);
  EXPECT_THAT(Due(kAge), ElementsAre(7));
  Make(100000);
  for (Key key = 0; key < 5000; ++key) Tick(key, 1);
  EXPECT_EQ(Due(1 + kAge).size(), 5000u) << "all of these are unsent";
}

}  // namespace
}  // namespace het::testing
