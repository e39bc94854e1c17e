// Rows that enter the cache on a device, rows that leave it for them, and rows that stay with the call.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "het_tf/core/base/hash.h"
#include "tests/cpp/testing/device/device_world.h"
#include "tests/cpp/testing/random.h"

namespace het::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Keys Range(int64_t from, int64_t to) {
  Keys keys(static_cast<size_t>(to - from));
  std::iota(keys.begin(), keys.end(), from);
  return keys;
}

Keys KeysOf(const std::vector<Update>& updates) {
  Keys keys;
  for (const Update& update : updates) keys.push_back(update.key);
  return keys;
}

// A table of one bucket, so that every key meets every other.
class DeviceInstallTest : public DeviceWorld {
 protected:
  static constexpr int64_t kRows = 32;

  void OneBucket(int policy) {
    HetDevTableConfig config = SgdTable("t", kRows, 4);
    config.policy = policy;
    AddTable(config);
  }
  // The one key of [0, kRows) that is not here any more.
  int64_t Gone() const {
    int64_t gone = -1;
    for (int64_t key = 0; key < kRows; ++key) {
      if (Has(key)) continue;
      EXPECT_EQ(gone, -1) << "two rows are gone";
      gone = key;
    }
    return gone;
  }
};

TEST_F(DeviceInstallTest, FillsABucketToTheLastSlot) {
  OneBucket(HET_DEV_LRU);
  Step(Range(0, kRows));
  EXPECT_EQ(State().capacity, 32u);
  EXPECT_EQ(State().rows, 32u);
  EXPECT_EQ(State().inserts, 32u);
  EXPECT_EQ(State().evictions, 0u);
  for (int64_t key = 0; key < kRows; ++key) EXPECT_EQ(Inspect(key).row, StoredRow(key, 0, 4));
}

TEST_F(DeviceInstallTest, LruGivesUpTheRowThatWasNotUsedForLongest) {
  OneBucket(HET_DEV_LRU);
  Step(Range(0, kRows));
  Keys used = Range(0, kRows);
  used.erase(used.begin() + 17);
  Step(used);
  Step({100});
  EXPECT_EQ(Gone(), 17);
  Step({101});  // of equal stamps the lowest key goes
  EXPECT_FALSE(Has(0));
  EXPECT_TRUE(Has(1));
  EXPECT_EQ(State().evictions, 2u);
  EXPECT_EQ(State().rows, 32u);
}

TEST_F(DeviceInstallTest, OrderOfKeysIsThatOfUnsignedNumbers) {
  OneBucket(HET_DEV_LRU);
  Keys keys = Range(1, kRows);
  keys.push_back(-1);
  Step(keys);
  Step({100});
  EXPECT_TRUE(Has(-1));
  EXPECT_FALSE(Has(1));
}

TEST_F(DeviceInstallTest, LfuGivesUpTheRowThatWasUsedLeast) {
  OneBucket(HET_DEV_LFU);
  Step(Range(0, kRows));
  Keys used = Range(0, kRows);
  used.erase(used.begin() + 9);
  for (int i = 0; i < 3; ++i) Step(used);
  Step({9});  // the last one used, and yet the least
  Step({100});
  EXPECT_EQ(Gone(), 9);
}

TEST_F(DeviceInstallTest, LightLfuStopsCounting) {
  OneBucket(HET_DEV_LIGHT_LFU);
  Keys others = Range(0, kRows);
  others.erase(others.begin() + 3);
  Step({3});
  for (int i = 0; i < 11; ++i) Step({3});
  EXPECT_EQ(Inspect(3).state.frequency, 8u);
  for (int i = 0; i < 8; ++i) Step(others);  // 8 each too; 8 * 31 + 12 first uses: one ageing
  EXPECT_EQ(Inspect(3).state.frequency, 4u);
}

TEST_F(DeviceInstallTest, FrequenciesAreHalvedAfterEightTimesTheCapacity) {
  OneBucket(HET_DEV_LFU);
  Step(Range(0, kRows));
  for (int i = 0; i < 6; ++i) Step(Range(0, kRows));
  EXPECT_EQ(Inspect(5).state.frequency, 7u);
  Step(Range(0, kRows));  // the 256th first use
  EXPECT_EQ(Inspect(5).state.frequency, 4u);
  Step(Range(0, kRows));
  EXPECT_EQ(Inspect(5).state.frequency, 5u);
}

TEST_F(DeviceInstallTest, PinnedRowsStayAndTheNewOneStaysWithTheCall) {
  OneBucket(HET_DEV_LRU);
  Step(Range(0, kRows));
  NewStep();
  uses_[0].pinned_from = 1;
  SetBatch({{{100, 5, 100}}});
  EXPECT_THAT(Lookup().keys(), ElementsAre(100));
  EXPECT_THAT(Install({{0, {100}, 2, true}}), IsEmpty());
  Gather();
  EXPECT_FALSE(Has(100));
  EXPECT_EQ(State().evictions, 0u);
  const std::vector<float> row = StoredRow(100, 2, 4);
  const std::vector<float> rows = RowsOf(0);
  EXPECT_TRUE(std::equal(row.begin(), row.end(), rows.begin()));
  EXPECT_TRUE(std::equal(row.begin(), row.end(), rows.begin() + 8));
}

TEST_F(DeviceInstallTest, RowsThatTheCallIsAboutAreNoVictims) {
  OneBucket(HET_DEV_LRU);
  Step(Range(0, kRows));
  NewStep();
  uses_[0].pinned_from = 99;  // none is pinned by its stamp
  Keys missing = Range(100, 140);
  SetBatch({{missing}});
  EXPECT_EQ(Lookup().bases.size(), 40u);
  missing.push_back(0);  // here: its row is renewed, though it would be the first to go
  Install({{0, missing, 7, true}});
  EXPECT_EQ(Inspect(0).state.base, 7);
  EXPECT_EQ(State().rows, 32u);
  EXPECT_EQ(State().inserts, 32u + 31u) << "31 of 40 entered, the others stay with the call";
  for (int64_t key = 100; key < 140; ++key) EXPECT_EQ(Has(key), key < 131) << key;
  Gather();
  const std::vector<float> rows = RowsOf(0);
  for (size_t i = 0; i < 40; ++i) EXPECT_EQ(rows[i * 4], StoredRow(missing[i], 7, 4)[0]);
}

TEST_F(DeviceInstallTest, DirtyVictimsLeaveWithTheirUpdates) {
  OneBucket(HET_DEV_LRU);
  EXPECT_THAT(Train({7, 3, -2}, 0.5f), IsEmpty());
  Train({3, 7}, 0.25f);
  EXPECT_EQ(State().dirty, 3u);
  Step(Range(100, 129));  // the bucket is full
  const std::vector<Update> victims = Step({200, 201, 202});
  ASSERT_THAT(KeysOf(victims), ElementsAre(3, 7, -2));
  EXPECT_EQ(victims[0].ticks, 2u);
  EXPECT_EQ(victims[2].ticks, 1u);
  EXPECT_THAT(victims[0].update, ElementsAre(-0.75f, -0.75f, -0.75f, -0.75f));
  EXPECT_THAT(victims[2].update, ElementsAre(-0.5f, -0.5f, -0.5f, -0.5f));
  EXPECT_EQ(State().dirty, 0u);
  EXPECT_EQ(State().evictions, 3u);
  EXPECT_THAT(Step({203}), IsEmpty()) << "a clean row leaves silently";
  EXPECT_EQ(State().evictions, 4u);
}

TEST_F(DeviceInstallTest, OwnUpdateStaysOnTopOfANewRow) {
  OneBucket(HET_DEV_LRU);
  Train({7}, 0.5f);
  NewStep();
  uses_[0].check = 1;
  SetBatch({{{7}}});
  EXPECT_EQ(Lookup().bases.at({0, 7}), 0);
  Install({{0, {7}, 9, true}});
  Gather();
  std::vector<float> expected = StoredRow(7, 9, 4);
  for (float& x : expected) x -= 0.5f;
  EXPECT_EQ(RowsOf(0), expected);
  EXPECT_EQ(Inspect(7).state.base, 9);
  EXPECT_EQ(Inspect(7).state.ticks, 1u);
  EXPECT_THAT(Inspect(7).update, ElementsAre(-0.5f, -0.5f, -0.5f, -0.5f));
}

TEST_F(DeviceInstallTest, VictimsOfSeveralTablesComeByTableAndKey) {
  OneBucket(HET_DEV_LRU);
  AddTable(SgdTable("wide", kRows, 6));
  Train({9, 5}, 1);
  Train({2, 1}, 3, nullptr, 1);
  Step(Range(100, 130), 0, 0);
  Step(Range(500, 530), 0, 1);
  NewStep();
  SetBatch({{{600, 601}, 1}, {{300, 301}, 0}});
  Lookup();
  // Answers in pieces, later tables first.
  const std::vector<Update> victims =
      Install({{1, {601, 600}, 0, true}, {0, {301}, 0, true}, {0, {300}, 0, true}});
  ASSERT_EQ(victims.size(), 4u);
  EXPECT_EQ(victims[0], (Update{0, 5, 1, {-1, -1, -1, -1}}));
  EXPECT_EQ(victims[1], (Update{0, 9, 1, {-1, -1, -1, -1}}));
  EXPECT_EQ(victims[2], (Update{1, 1, 1, {-3, -3, -3, -3, -3, -3}}));
  EXPECT_EQ(victims[3], (Update{1, 2, 1, {-3, -3, -3, -3, -3, -3}}));
  EXPECT_TRUE(Has(300) && Has(301));
  EXPECT_TRUE(Has(600, 1) && Has(601, 1));
  EXPECT_TRUE(Has(500, 1));
}

TEST_F(DeviceInstallTest, RowsOfTheCallGrowWithIt) {
  OneBucket(HET_DEV_LRU);
  NewStep();
  const Keys keys = Range(0, 3000);
  SetBatch({{keys}});
  Lookup();
  for (int64_t from = 0; from < 3000; from += 500) Install({{0, Range(from, from + 500), 1, false}});
  Gather();
  const std::vector<float> rows = RowsOf(0);
  for (int64_t key = 0; key < 3000; ++key) {
    const std::vector<float> row = StoredRow(key, 1, 4);
    EXPECT_TRUE(std::equal(row.begin(), row.end(), rows.begin() + key * 4)) << key;
  }
  EXPECT_EQ(State().rows, 0u);
  Install({{0, {5}, 3, true}});  // replaced where it is
  EXPECT_EQ(State().rows, 0u);
  EXPECT_THAT(Lookup(0).hits, ElementsAre(3000));
  EXPECT_EQ(RowsOf(0)[20], StoredRow(5, 3, 4)[0]);
}

TEST_F(DeviceInstallTest, WrongAnswers) {
  OneBucket(HET_DEV_LRU);
  NewStep();
  SetBatch({{{1, 2}}});
  Lookup();
  std::vector<Update> victims;
  EXPECT_EQ(TryInstall({{0, {2, 1}, 0, true}, {0, {5, 2}, 0, true}}, &victims), HET_DEV_INVALID);
  EXPECT_THAT(HetDevError(), HasSubstr("key 2 of table 't' has more than one row"));
  EXPECT_EQ(TryInstall({{0, {2}, -1, true}}, &victims), HET_DEV_INVALID);
  EXPECT_THAT(HetDevError(), HasSubstr("base -1"));
  EXPECT_EQ(State().rows, 0u) << "nothing was installed";
}

// The same steps give the same bytes, whatever the threads do.
class DeviceThreadsTest : public DeviceInstallTest {
 protected:
  void TearDown() override {
    unsetenv("HET_DEV_HOST_THREADS");
    DeviceInstallTest::TearDown();
  }

  // A hash of all that a run gives out.
  uint64_t Run(const char* threads) {
    setenv("HET_DEV_HOST_THREADS", threads, 1);
    for (HetDevTable* table : tables_) HetDevDestroyTable(context_, table);
    tables_.clear();
    configs_.clear();
    uses_.clear();
    stamp_ = 0;
    HetDevTableConfig config = SgdTable("t", 256, 4);
    config.policy = HET_DEV_LFU;
    AddTable(config);
    uint64_t hash = 0;
    const auto add = [&hash](uint64_t x) { hash = Mix64(hash + 0x9e3779b97f4a7c15ULL + x); };
    Random random(5);
    for (uint64_t step = 0; step < std::max<uint64_t>(8, Scaled(60)); ++step) {
      Keys keys;
      for (int i = 0; i < 200; ++i) keys.push_back(random.Between(0, 20) * random.Between(0, 40));
      std::vector<Update> left;
      for (const Update& due : Train(keys, 0.125f * static_cast<float>(step), &left)) left.push_back(due);
      for (const Update& update : left) {
        add(static_cast<uint64_t>(update.key));
        add(update.ticks);
        for (const float x : update.update) add(static_cast<uint64_t>(static_cast<int64_t>(x * 1024)));
      }
      for (const float x : RowsOf(0)) add(static_cast<uint64_t>(static_cast<int64_t>(x * 1024)));
    }
    EXPECT_GT(State().evictions, 0u);
    add(State().dirty);
    return hash;
  }
};

TEST_F(DeviceThreadsTest, ResultsDoNotDependOnThem) {
  const uint64_t one = Run("1");
  for (const char* threads : {"2", "5"}) EXPECT_EQ(Run(threads), one) << threads << " threads";
}

}  // namespace
}  // namespace het::testing
