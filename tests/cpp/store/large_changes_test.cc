// Rows that have moved far, and the reader that gets them before the others.
#include "het_tf/core/store/large_changes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "het_tf/core/store/changes.h"
#include "het_tf/core/store/chunk.h"
#include "het_tf/core/store/chunk_format.h"
#include "tests/cpp/testing/random.h"

namespace het::testing {
namespace {

constexpr size_t kFloats = 2;

// One table of a partition that remembers large changes, and a reader of them.
class LargeChangesTest : public ::testing::Test {
 protected:
  explicit LargeChangesTest(const std::string& optimizer = "sgd") {
    TableSpec spec;
    spec.name = "t";
    spec.dim = kFloats;
    spec.optimizer.name = optimizer;
    spec.initializer = {"zeros", 0, 0};
    schema_ = TableSchema::Create(spec).value();
    Begin(1);
  }
  void Begin(uint64_t incarnation) {
    partition_ = std::make_unique<Partition>(PartitionId{0, 1, 3}, incarnation);
    EXPECT_TRUE(partition_->CreateTable(schema_, 9).ok());
  }
  const Shard& shard() const { return *partition_->shards().at(schema_->id()); }
  Position now() const { return {partition_->incarnation(), partition_->changes().now()}; }

  // Adds (x, y) to the values of the keys.
  void Push(const std::vector<Key>& keys, float x, float y = 0) {
    Request q;
    q.partition = partition_->id();
    q.client = {1, 2};
    q.seq = q.after_seq = partition_->clients().LastSeq(q.client) + 1;
    TableRequest& t = q.tables.emplace_back();
    t.table = schema_->id();
    t.epoch = shard().epoch();
    t.update_floats = static_cast<uint32_t>(schema_->optimizer().wire_floats());
    t.push_keys.assign(keys.begin(), keys.end());
    t.push_ticks.assign(keys.size(), 1);
    for (size_t i = 0; i < keys.size(); ++i) {
      t.push_updates.insert(t.push_updates.end(), {x, y});
      t.push_updates.resize((i + 1) * t.update_floats, 1);
    }
    Bytes frame, reply;
    Encode(q, &frame);
    Handling how;
    how.now = 1000;
    ASSERT_TRUE(partition_->Handle({frame.data(), frame.size()}, &reply, how).applied);
  }
  void Load(const Bytes& chunk) {
    ASSERT_TRUE(LoadChunk({chunk.data(), chunk.size()}, partition_.get()).ok());
  }
  void Set(Key key, float x) {
    std::vector<float> row(schema_->row_floats());
    row[0] = x;
    Bytes chunk;
    EncodeSet(*schema_, {&key, 1}, row.data(), &chunk);
    Load(chunk);
  }
  void Remove(Key key) {
    Bytes chunk;
    EncodeRemove(*schema_, {&key, 1}, &chunk);
    Load(chunk);
  }
  using Found = std::map<Key, std::pair<float, float>>;
  // The rows with large changes since `position_`, which moves on; nothing if it is not known.
  Found Large(size_t max_bytes = 1 << 20) {
    Found found;
    ChangesRequest request;
    request.since = position_;
    request.max_bytes = max_bytes;
    ChangesPage page;
    pages_ = 0;
    do {
      ReadLargeChanges(*partition_, request, &page);
      EXPECT_TRUE(ParseCursor(ToString(page.next), &request.cursor)) << ToString(page.next);
      for (const Bytes& chunk : page.chunks) {
        ChangedRows rows;
        EXPECT_TRUE(DecodeChanges({chunk.data(), chunk.size()}, &rows).ok());
        EXPECT_EQ(rows.what, ChangedRows::kValues);
        for (size_t i = 0; i < rows.keys.size(); ++i) {
          found[rows.keys[i]] = {rows.values[i * kFloats], rows.values[i * kFloats + 1]};
        }
      }
      if (between_pages) between_pages();
    } while (!request.cursor.begins() && ++pages_ < 1000);
    kind_ = page.kind;
    position_ = page.start;
    return found;
  }
  std::set<Key> LargeKeys() {
    std::set<Key> keys;
    for (const auto& [key, row] : Large()) keys.insert(key);
    return keys;
  }

  Schema schema_;
  std::unique_ptr<Partition> partition_;
  Position position_;
  ChangesKind kind_ = ChangesKind::kWhole;
  size_t pages_ = 0;  // of the last scan, except the last one
  std::function<void()> between_pages;
};

using Keys = std::set<Key>;

// Would catch a step that is compared by itself: small ones add up, whatever their directions.
TEST_F(LargeChangesTest, StepsAddUpUntilTheyExceedTheFraction) {
  partition_->set_large_update(0.25);
  Push({1, 2}, 8);
  position_ = now();
  Push({1}, 1);
  Push({1}, 0, 1);
  EXPECT_EQ(LargeKeys(), Keys()) << "2 of 9.05";
  Push({1}, -0.5);
  EXPECT_EQ(LargeKeys(), Keys({1})) << "2.5 of 8.56";
  Push({1}, 2);
  EXPECT_EQ(LargeKeys(), Keys()) << "the sum began at 0 again";
  Push({1}, 1);
  EXPECT_EQ(LargeKeys(), Keys({1}));
  EXPECT_EQ(LargeKeys(), Keys()) << "each change comes once";
}

TEST_F(LargeChangesTest, NewAssignedAndRestoredRowsAreLarge) {
  partition_->set_large_update(10);
  Push({1, 2, 3}, 1);
  position_ = {1, 0};
  EXPECT_EQ(LargeKeys(), Keys({1, 2, 3})) << "they are new";
  Push({1}, 0.5f);
  EXPECT_EQ(LargeKeys(), Keys());
  Set(2, 1.0f);
  EXPECT_EQ(LargeKeys(), Keys({2}));
  Remove(2);
  Push({2}, 0.001f);
  EXPECT_EQ(LargeKeys(), Keys({2})) << "another row in the place of the removed one is new";
  Remove(1);
  Remove(2);
  Remove(3);
  Push({4}, 1);
  EXPECT_EQ(LargeKeys(), Keys({4})) << "after the last row was removed";
  Bytes stored;
  const uint32_t row = shard().rows().Find(4);
  chunk::EncodeStored(shard(), {&row, 1}, &stored);
  Load(stored);
  EXPECT_EQ(LargeKeys(), Keys({4})) << "a loaded row";
  partition_->ClearTable(schema_->id(), 10);
  position_ = now();
  Push({4}, 0.001f);
  EXPECT_EQ(LargeKeys(), Keys({4})) << "after a clear";
}

// Would catch `sum > limit`, which never holds for what is not a number.
TEST_F(LargeChangesTest, WhatIsNotANumberIsLarge) {
  partition_->set_large_update(0.5);
  Push({1, 2}, 1);
  position_ = now();
  for (const float odd : {INFINITY, NAN}) {
    Set(1, odd);
    LargeKeys();
    for (int i = 0; i < 2; ++i) {
      Push({1}, 0.001f);
      EXPECT_EQ(LargeKeys(), Keys({1})) << odd << " in push " << i;
    }
  }
  Set(2, 3e38f);
  LargeKeys();
  Push({2}, 1e37f);
  EXPECT_EQ(LargeKeys(), Keys()) << "squares do not overflow";
}

// Would catch a float that is left out of a step or a length, at the end of a width or within it.
TEST(LargeChanges, EveryFloatCounts) {
  for (const size_t dim : {1, 3, 4, 7, 16}) {
    for (size_t i = 0; i < dim; ++i) {
      LargeChanges large(dim);
      large.Reserve(1);
      large.set_fraction(0.25);
      large.Set(0, 1);
      std::vector<float> value(dim);
      const auto move = [&](float to, uint64_t number) {
        large.Before(value.data());
        value[i] = to;
        large.After(0, value.data(), number);
        return large.numbers().MayHaveChanged(0, number - 1, number);
      };
      EXPECT_TRUE(move(1, 2)) << "dim " << dim << ", float " << i;
      EXPECT_FALSE(move(1.25f, 3)) << "0.25 of 1.25, dim " << dim << ", float " << i;
      EXPECT_TRUE(move(1.5f, 4)) << "0.5 of 1.5";
    }
  }
}

// Would catch an update of optimizer slots that counts as a step of the value.
class LargeChangesOfAdagradTest : public LargeChangesTest {
 protected:
  LargeChangesOfAdagradTest() : LargeChangesTest("adagrad") {}
};
TEST_F(LargeChangesOfAdagradTest, OnlyTheValueCounts) {
  partition_->set_large_update(0.1);
  Push({1}, 8);
  position_ = now();
  for (int i = 0; i < 50; ++i) Push({1}, 0);
  EXPECT_EQ(LargeKeys(), Keys());
  EXPECT_GT(shard().rows().data(shard().rows().Find(1))[kFloats], 40) << "the accumulator grew";
}

TEST_F(LargeChangesTest, TakeNoMemoryWhenTheyAreOff) {
  std::vector<Key> keys(10000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<Key>(i);
  Push(keys, 1);
  EXPECT_EQ(shard().large(), nullptr);
  const size_t off = partition_->bytes();
  partition_->set_large_update(0.1);
  EXPECT_LE(partition_->bytes() - off, 8.4 * 10000);
  EXPECT_GE(partition_->bytes() - off, 8.0 * 10000);
  partition_->set_large_update(0);
  EXPECT_EQ(partition_->bytes(), off);
}

// Would catch rows whose sums are made half: a push would write beside them.
TEST_F(LargeChangesTest, WithoutMemoryTheyStayOff) {
  std::vector<Key> keys(10000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<Key>(i);
  Push(keys, 1);
  TableSpec spec = schema_->spec();
  for (const char* name : {"a", "b", "c", "d"}) {  // by their ids, some come first
    spec.name = name;
    ASSERT_TRUE(partition_->CreateTable(TableSchema::Create(spec).value(), 9).ok());
  }
  SetAllocLimit(AllocatedBytes() + 20000);
  partition_->set_large_update(0.1);
  SetAllocLimit(SIZE_MAX);
  EXPECT_FALSE(partition_->changes().remembers_large());
  for (const auto& [table, one] : partition_->shards()) EXPECT_EQ(one->large(), nullptr);
  Push(keys, 1);
  partition_->set_large_update(0.1);
  EXPECT_TRUE(partition_->changes().remembers_large());
}

// Would catch a reader that believes to have all large changes, of which nobody took notice.
TEST_F(LargeChangesTest, APositionThatIsNotKnownGetsNoRows) {
  Push({1}, 1);
  const Position before = now();
  Push({2}, 1);
  partition_->set_large_update(0.1);
  const Position since = now();
  const auto expect_whole = [&](Position position) {
    position_ = position;
    EXPECT_EQ(LargeKeys(), Keys());
    EXPECT_EQ(kind_, ChangesKind::kWhole);
    EXPECT_EQ(position_, now());
  };
  expect_whole(before);
  Push({2}, 1);
  position_ = since;
  EXPECT_EQ(LargeKeys(), Keys({2}));
  EXPECT_EQ(kind_, ChangesKind::kChanges);
  expect_whole({2, since.number});
  expect_whole({1, now().number + 1});
  partition_->ClearTable(schema_->id(), 10);
  expect_whole(since);
  Push({3}, 1);
  EXPECT_EQ(LargeKeys(), Keys({3}));
  partition_->set_large_update(0.2);
  Push({4}, 1);
  EXPECT_EQ(LargeKeys(), Keys({4})) << "another fraction forgets nothing";
  const Position on = position_;
  partition_->set_large_update(0);
  expect_whole(on);
  partition_->set_large_update(0.2);
  Push({3}, 1);
  expect_whole({on.incarnation, on.number - 1});
}

// Would catch a scan that goes on from the number at its last page, or ends at the first page's rows.
TEST_F(LargeChangesTest, WhatMovesBehindTheCursorComesInTheNextScan) {
  partition_->set_large_update(0.1);
  std::vector<Key> keys(50);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<Key>(i);
  Push(keys, 1);
  position_ = {1, 0};
  bool moved = false;
  between_pages = [&] {
    if (!std::exchange(moved, true)) Push({0}, 1);
  };
  EXPECT_EQ(Large(100).size(), 50u);
  EXPECT_GT(pages_, 5u);
  EXPECT_EQ(LargeKeys(), Keys({0}));
}

// The promise: what a reader of large changes lacks is at most the fraction of the row, in summed steps.
TEST_F(LargeChangesTest, AReaderLacksAtMostTheFractionOfARow) {
  for (uint64_t seed = 0; seed < Scaled(100); ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Begin(seed + 10);
    const double fraction = random.Unit();
    partition_->set_large_update(fraction);
    position_ = now();
    between_pages = nullptr;
    Found served, stored;
    std::map<Key, double> lacks;
    size_t came = 0, pushes = 0;
    for (int step = 0; step < 200; ++step) {
      const Key key = static_cast<Key>(random.Below(20));
      const auto x = static_cast<float>(random.Unit() - 0.45), y = static_cast<float>(random.Unit() - 0.45);
      Push({key}, x, y);
      ++pushes;
      stored[key].first += x;
      stored[key].second += y;
      lacks[key] += std::hypot(x, y);
      if (random.Chance(0.1)) {
        Remove(key);
        for (Found* rows : {&stored, &served}) rows->erase(key);
        lacks.erase(key);
      }
      for (const auto& [each, row] : Large(random.Below(100) + 1)) {
        served[each] = row;
        lacks[each] = 0;
        ++came;
      }
      for (const auto& [each, row] : stored) {
        ASSERT_EQ(served.count(each), 1u) << each;
        ASSERT_LE(lacks[each], fraction * std::hypot(row.first, row.second) + 1e-5) << each;
      }
    }
    EXPECT_LE(came, pushes);
    if (HasFailure()) return;
  }
}

TEST_F(LargeChangesTest, AnyCursorIsSafe) {
  partition_->set_large_update(0.1);
  Push({1, 2, 3}, 1);
  for (uint64_t seed = 0; seed < Scaled(1000); ++seed) {
    Random random(seed);
    ChangesRequest request;
    request.since = {1, random.Below(3)};
    request.cursor.start = {1, random.Below(3)};
    request.cursor.kind = static_cast<ChangesKind>(random.Below(3));
    request.cursor.stage = static_cast<ChangesCursor::Stage>(random.Below(4));
    request.cursor.table = random.Chance(0.5) ? schema_->id() : random.Next();
    request.cursor.at = random.Chance(0.5) ? random.Below(5) : random.Below(UINT32_MAX);
    request.max_bytes = random.Below(50) + 1;
    ChangesPage page;
    int pages = 0;
    do {
      ReadLargeChanges(*partition_, request, &page);
      request.cursor = page.next;
    } while (!page.next.begins() && ++pages < 10);
    EXPECT_LT(pages, 10) << "a scan ends";
  }
}

}  // namespace
}  // namespace het::testing
