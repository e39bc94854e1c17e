// Limits of one table in one partition; swept rows are removed from every copy or from none.
#include "het_tf/core/store/shard.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "het_tf/core/store/chunk.h"
#include "tests/testing/fits_in.h"
#include "tests/testing/handle_frame.h"
#include "tests/testing/partition_bytes.h"
#include "tests/testing/random.h"
#include "tests/testing/requests.h"
#include "tests/testing/table_specs.h"

namespace het::testing {
namespace {

constexpr uint32_t kNow = 1700000000;

class ShardTest : public ::testing::Test {
 protected:
  // With `limits_`.
  void Make() {
    shard_ = std::make_unique<Shard>(NewSchema("t", 2, "sgd", {}, limits_), 1, 5);
    shard_->set_limits(limits_);
  }
  void Tick(Key key, uint32_t now) {
    bool created = false;
    const uint32_t row = shard_->FindOrCreate(key, shard_->rows().Hash(key), &created);
    CountTick(now, &shard_->rows().meta(row));
  }
  bool Has(Key key) const { return shard_->rows().Find(key) != kNoRow; }
  Clock ClockOf(Key key) { return shard_->rows().meta(shard_->rows().Find(key)).clock; }
  Swept Sweep(uint32_t now, size_t budget = 1000) {
    removed_.clear();
    const Swept swept = shard_->Sweep(now, budget, 1, &removed_);
    EXPECT_EQ(swept.rows(), removed_.size());
    return swept;
  }

  TableLimits limits_;
  std::unique_ptr<Shard> shard_;
  Vector<Key> removed_;
};

TEST_F(ShardTest, RowsExpireByTheirLastUpdate) {
  limits_.ttl = 100;
  Make();
  for (Key key = 0; key < 10; ++key) Tick(key, kNow + static_cast<uint32_t>(key));
  Tick(0, kNow + 50);
  EXPECT_EQ(Sweep(kNow + 100).rows(), 0u) << "key 0 was updated again, key 1 is 99 s old";
  const Swept swept = Sweep(kNow + 105);
  EXPECT_EQ(swept.ttl, 5u);
  EXPECT_EQ(std::set<Key>(removed_.begin(), removed_.end()), std::set<Key>({1, 2, 3, 4, 5}));
  EXPECT_TRUE(Has(0));
  EXPECT_EQ(Sweep(kNow).rows(), 0u) << "a clock that goes back";
}

TEST_F(ShardTest, RareRowsGoEarlier) {
  limits_.min_count = 3;
  limits_.min_count_ttl = 10;
  limits_.ttl = 100;
  Make();
  for (Key key = 1; key <= 4; ++key) {
    for (Key i = 0; i < key; ++i) Tick(key, kNow);
  }
  EXPECT_EQ(Sweep(kNow + 9).rows(), 0u);
  EXPECT_EQ(Sweep(kNow + 10).min_count, 2u);
  EXPECT_FALSE(Has(2));
  EXPECT_TRUE(Has(3));
  EXPECT_EQ(Sweep(kNow + 100).ttl, 2u);
}

TEST_F(ShardTest, LimitCountsFromWhenItWasSet) {
  Make();
  Tick(1, kNow);
  limits_.ttl = 100;
  limits_.since = kNow + 1000;
  shard_->set_limits(limits_);
  EXPECT_EQ(Sweep(kNow + 1099).rows(), 0u) << "1099 s old, but the limit is 99 s old";
  EXPECT_EQ(Sweep(kNow + 1100).ttl, 1u);
}

TEST_F(ShardTest, MaxRowsSweepsLeastRecentlyUsedOfSample) {
  limits_.max_rows = 1000;
  Make();
  for (Key key = 0; key < 1000; ++key) Tick(key, kNow + (key < 500 ? 0 : 10));
  EXPECT_EQ(Sweep(kNow + 20).rows(), 0u);
  for (Key key = 1000; key < 1300; ++key) Tick(key, kNow + 20);
  EXPECT_EQ(Sweep(kNow + 20, 100).max_rows, 100u) << "no more than the budget";
  EXPECT_EQ(Sweep(kNow + 20).max_rows, 200u);
  EXPECT_EQ(shard_->rows().size(), 1000u);
  size_t old = 0;
  size_t young = 0;
  for (Key key = 0; key < 500; ++key) old += Has(key);
  for (Key key = 1000; key < 1300; ++key) young += Has(key);
  EXPECT_LT(old, 240u) << "200 if it were exact";
  EXPECT_GT(young, 297u);
}

TEST_F(ShardTest, APartitionHoldsItsShare) {
  limits_.max_rows = 10;
  Make();
  for (Key key = 0; key < 100; ++key) Tick(key, kNow);
  shard_->Sweep(kNow, 1000, 4, nullptr);
  EXPECT_EQ(shard_->rows().size(), 3u) << "10 / 4, rounded up";
  shard_->Sweep(kNow, 1000, 64, nullptr);
  EXPECT_EQ(shard_->rows().size(), 1u);
}

TEST_F(ShardTest, SweepStopsAtItsBudget) {
  limits_.ttl = 1;
  Make();
  for (Key key = 0; key < 1000; ++key) Tick(key, kNow);
  for (size_t left = 1000; left > 0; left -= 100) {
    EXPECT_EQ(shard_->rows().size(), left);
    EXPECT_EQ(Sweep(kNow + 10, 100).ttl, 100u);
  }
  EXPECT_EQ(shard_->rows().size(), 0u);
  EXPECT_EQ(Sweep(kNow + 10).rows(), 0u);
}

TEST_F(ShardTest, MemoryOfRowsThatWentIsUsedAgain) {
  limits_.max_rows = 5000;
  Make();
  size_t bytes = 0;
  for (Key key = 0; key < 100000; ++key) {
    Tick(key, kNow + static_cast<uint32_t>(key));
    if (key % 50 == 49) Sweep(kNow + static_cast<uint32_t>(key), 200);
    if (key == 10000) bytes = shard_->rows().bytes();
  }
  EXPECT_EQ(shard_->rows().bytes(), bytes);
  limits_ = TableLimits();
  limits_.ttl = 1;
  shard_->set_limits(limits_);
  Sweep(kNow + 200000, 10000);
  EXPECT_EQ(shard_->rows().size(), 0u);
  EXPECT_LT(shard_->rows().bytes(), 1000u) << "the last row gives it back";
  Tick(1, kNow);
  EXPECT_TRUE(Has(1));
}

TEST_F(ShardTest, RecreatedRowStartsAboveTheClockFloor) {
  Make();
  Tick(1, kNow);
  EXPECT_EQ(ClockOf(1), 1) << "nothing went yet";
  for (int i = 0; i < 6; ++i) Tick(2, kNow);
  shard_->Remove(shard_->rows().Find(1));
  Tick(1, kNow);
  EXPECT_EQ(ClockOf(1), 2 * kBirthGap + 1);
  shard_->Remove(shard_->rows().Find(2));
  EXPECT_EQ(shard_->clock_floor(), 6);
  shard_->RaiseFloor(INT64_MAX);
  Tick(3, kNow);
  EXPECT_GT(ClockOf(3), Shard::kMaxClock) << "no overflow";
  shard_->Clear(2);
  Tick(1, kNow);
  EXPECT_EQ(ClockOf(1), 1) << "another epoch";
}

// A partition with a copy that gets the replication of Handle and Sweep.
class CopyTest : public ::testing::Test {
 protected:
  CopyTest() {
    limits_.ttl = 50;
    limits_.max_rows = 300;
    limits_.min_count = 2;
    limits_.min_count_ttl = 20;
    const Schema schema = NewSchema("t", 2, "sgd", {}, limits_);
    EXPECT_TRUE(partition_.CreateTable(schema, 9, kNow).ok());
    copy_ = std::move(PartitionOf(BytesOf(partition_), 2).value());
  }
  Bytes Push(uint64_t client, uint64_t keys) {
    Request q = RequestOf(partition_.id(), {client, 1}, partition_.clients().LastSeq({client, 1}) + 1);
    q.after_seq = 0;
    std::set<Key> some;
    while (some.size() < keys) some.insert(static_cast<Key>(random_.Below(2000)));
    AddPush(&AddTable(&q, partition_.Find(HashName("t"))->schema(), 9), some);
    Bytes frame;
    Encode(q, &frame);
    return frame;
  }
  static Handling HandlingAt(uint32_t now) {
    Handling how;
    how.now = now;
    how.replicate = true;
    return how;
  }

  TableLimits limits_;
  Partition partition_{PartitionId{0, 1, 5}, 1};
  std::unique_ptr<Partition> copy_;
  Random random_{8};
};

TEST_F(CopyTest, ACopyFollowsEverySweep) {
  Swept swept;
  uint32_t now = kNow;
  for (int i = 0; i < 400; ++i) {
    now += static_cast<uint32_t>(random_.Below(3));
    if (i == 350) now += kClientSeconds;
    Bytes reply;
    const Bytes frame = Push(1 + random_.Below(i < 350 ? 20 : 2), random_.Below(30));
    Handled handled;
    if (random_.Chance(0.8)) {
      handled = HandleFrame(&partition_, frame, &reply, HandlingAt(now));
      ASSERT_TRUE(handled.applied);
      swept += handled.swept;
    } else {
      swept += partition_.Sweep(now, 100, &handled.replication.removals);
    }
    ASSERT_TRUE(CopyHandles(frame, handled, copy_.get()));
    ASSERT_EQ(BytesOf(*copy_), BytesOf(partition_)) << i;
  }
  EXPECT_GT(swept.ttl, 0u);
  EXPECT_GT(swept.min_count, 0u);
  EXPECT_GT(swept.max_rows, 0u);
  EXPECT_EQ(swept.clients, 18u);
  EXPECT_EQ(partition_.clients().all().size(), 2u);
}

TEST_F(CopyTest, WithoutMemoryForACopyNothingIsSwept) {
  Bytes reply;
  const Bytes frame = Push(1, 300);
  ASSERT_TRUE(CopyHandles(frame, HandleFrame(&partition_, frame, &reply, HandlingAt(kNow)), copy_.get()));
  int held_back = 0;
  for (size_t room = 0;; room += 64) {
    Handled swept_out;
    std::vector<Bytes>& removals = swept_out.replication.removals;
    Swept swept;
    ASSERT_TRUE(FitsIn(room, [&] { swept = partition_.Sweep(kNow + 1000, 1000, &removals); }));
    ASSERT_TRUE(CopyHandles({}, swept_out, copy_.get()));
    ASSERT_EQ(BytesOf(*copy_), BytesOf(partition_));
    if (swept.rows() > 0) break;
    ++held_back;
  }
  EXPECT_GT(held_back, 0);
  EXPECT_EQ(partition_.Find(HashName("t"))->rows().size(), 0u);
}

}  // namespace
}  // namespace het::testing
