// Reading from the cache on a device: HetDevLookup, HetDevGather, and what they count.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>

#include "het_tf/kernels/cuda/host_memory.h"
#include "tests/cpp/testing/device/device_world.h"

namespace het::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr float kUntouched = -999.0f;

class DeviceLookupTest : public DeviceWorld {
 protected:
  // Row i of a feature is what the store holds of the key at this clock.
  void ExpectRow(size_t feature, uint64_t i, int64_t key, int64_t base, uint32_t use = 0) {
    const uint32_t dim = configs_[use].dim;
    const std::vector<float> rows = RowsOf(feature);
    const std::vector<float> got(rows.begin() + static_cast<ptrdiff_t>(i * dim),
                                 rows.begin() + static_cast<ptrdiff_t>((i + 1) * dim));
    EXPECT_EQ(got, StoredRow(key, base, dim)) << "row " << i << ", key " << key;
  }
};

TEST_F(DeviceLookupTest, MissesAreWantedAndThenGathered) {
  AddTable(SgdTable("t", 64, 5));
  NewStep();
  const Keys ids = {3, 1, 3, INT64_MIN, INT64_MAX, 0, -1, 1};
  SetBatch({{ids}});
  const Wanted wanted = Lookup();
  EXPECT_THAT(wanted.keys(), UnorderedElementsAre(3, 1, INT64_MIN, INT64_MAX, 0, -1));
  for (const auto& [key, base] : wanted.bases) EXPECT_EQ(base, HET_DEV_NO_BASE);
  EXPECT_THAT(wanted.reads, ElementsAre(6));
  EXPECT_THAT(wanted.hits, ElementsAre(0));
  EXPECT_THAT(RowsOf(0), Each(kUntouched));

  EXPECT_THAT(Install({{0, wanted.keys(), 2, true}}), IsEmpty());
  Gather();
  for (uint64_t i = 0; i < ids.size(); ++i) ExpectRow(0, i, ids[i], 2);

  NewStep();
  SetBatch({{ids}});
  const Wanted again = Lookup();
  EXPECT_THAT(again.bases, IsEmpty());
  EXPECT_THAT(again.reads, ElementsAre(6));
  EXPECT_THAT(again.hits, ElementsAre(6));
  for (uint64_t i = 0; i < ids.size(); ++i) ExpectRow(0, i, ids[i], 2);
}

TEST_F(DeviceLookupTest, RowsThatAreToBeCheckedAreWantedWithTheirClocks) {
  AddTable(SgdTable("t", 64, 4));
  Step({1, 2}, 5);
  NewStep();
  uses_[0].check = 1;
  SetBatch({{{2, 9, 2, 1}}});
  const Wanted wanted = Lookup();
  EXPECT_EQ(wanted.bases.size(), 3u);
  EXPECT_EQ(wanted.bases.at({0, 1}), 5);
  EXPECT_EQ(wanted.bases.at({0, 2}), 5);
  EXPECT_EQ(wanted.bases.at({0, 9}), HET_DEV_NO_BASE);
  EXPECT_THAT(wanted.reads, ElementsAre(3));
  EXPECT_THAT(wanted.hits, ElementsAre(2));
  EXPECT_THAT(RowsOf(0), Each(kUntouched)) << "a row went out before the store had looked at it";
  // The store has a newer row of 2, and that of 1 may stay.
  Install({{0, {2}, 8, true}, {0, {9}, 1, true}});
  Gather();
  ExpectRow(0, 0, 2, 8);
  ExpectRow(0, 1, 9, 1);
  ExpectRow(0, 2, 2, 8);
  ExpectRow(0, 3, 1, 5);
  EXPECT_EQ(Inspect(2).state.base, 8);
  EXPECT_EQ(Inspect(1).state.base, 5);
}

TEST_F(DeviceLookupTest, InvalidRowsAreWantedAnew) {
  AddTable(SgdTable("t", 64, 4));
  Step({1, 2}, 5);
  uint64_t discarded = 0;
  const int64_t key = 2;
  ASSERT_EQ(HetDevForgetKeys(context_, tables_[0], HET_DEV_INVALIDATE, &key, 1, nullptr, &discarded),
            HET_DEV_OK);
  EXPECT_EQ(State().invalid, 1u);
  NewStep();
  SetBatch({{{2, 1}}});
  const Wanted wanted = Lookup();
  EXPECT_THAT(wanted.keys(), ElementsAre(2));
  EXPECT_EQ(wanted.bases.at({0, 2}), HET_DEV_NO_BASE);
  EXPECT_THAT(wanted.hits, ElementsAre(2)) << "invalid rows count as here";
  ExpectRow(0, 1, 1, 5);
  Install({{0, {2}, 1, true}});
  Gather();
  ExpectRow(0, 0, 2, 1);
  EXPECT_EQ(State().invalid, 0u);
  EXPECT_EQ(Inspect(2).state.invalid, 0);
}

// Lookups are numbered, and the numbers come again: first after six, so that it is seen here. A row that has
// slept for a whole round is met like any other.
TEST_F(DeviceLookupTest, RowsAreMetAgainWhenNumbersOfLookupsStartAgain) {
  AddTable(SgdTable("t", 64, 4));
  NewStep();
  SetBatch({{{0, 1, 2, 3, 4, 5, 6}}});
  Lookup();
  Install({{0, {0, 1, 2}, 5, true}, {0, {3, 4, 5, 6}, 5, false}});  // the last four stay with the call
  for (const int64_t rows : {6, 7}) {
    for (int64_t i = 0; i < 3 * rows; ++i) {
      uses_[0].check = 1;
      SetBatch({{{i % rows}}});
      const Wanted wanted = Lookup();
      EXPECT_THAT(wanted.keys(), ElementsAre(i % rows)) << "in lookup " << i;
      EXPECT_THAT(wanted.hits, ElementsAre(1)) << "in lookup " << i;
    }
  }
}

TEST_F(DeviceLookupTest, TablesOfDifferentWidthInOneCall) {
  AddTable(SgdTable("narrow", 64, 1));
  HetDevTableConfig wide = SgdTable("wide", 200, 33);
  wide.optimizer = HET_DEV_ADAGRAD;
  wide.params[0] = 0.1;
  wide.params[1] = 1e-7;
  wide.row_floats = 66;
  AddTable(wide);
  NewStep();
  SetBatch({{{1, 2, 1}, 0}, {{}, 1}, {{2, 7}, 1}, {{2}, 0}, {{}, 0}});
  const Wanted wanted = Lookup();
  EXPECT_THAT(wanted.keys(0), ElementsAre(1, 2));
  EXPECT_THAT(wanted.keys(1), ElementsAre(2, 7));
  EXPECT_THAT(wanted.reads, ElementsAre(2, 2));
  Install({{1, {7}, 4, true}, {0, {2, 1}, 1, true}, {1, {2}, 3, false}});
  Gather();
  ExpectRow(0, 0, 1, 1, 0);
  ExpectRow(0, 1, 2, 1, 0);
  ExpectRow(0, 2, 1, 1, 0);
  ExpectRow(2, 0, 2, 3, 1);  // of the call
  ExpectRow(2, 1, 7, 4, 1);
  ExpectRow(3, 0, 2, 1, 0);
  EXPECT_EQ(Inspect(7, 1).row, StoredRow(7, 4, 66)) << "slots included";
  EXPECT_FALSE(Has(2, 1));
  EXPECT_FALSE(Has(7, 0));
}

// Enough of them that a key of one table meets itself of the other in the set of what is missing.
TEST_F(DeviceLookupTest, TablesMayHaveTheSameKeys) {
  AddTable(SgdTable("a", 64, 1));
  AddTable(SgdTable("b", 64, 1));
  for (int64_t round = 0; round < 16; ++round) {
    NewStep();
    Keys keys;
    for (int64_t key = 0; key < 1000; ++key) keys.push_back(round * 1000 + key);
    SetBatch({{keys, 0}, {keys, 1}, {keys, 0}});
    const Wanted wanted = Lookup();
    ASSERT_THAT(wanted.reads, ElementsAre(1000, 1000)) << "round " << round;
    ASSERT_EQ(wanted.bases.size(), 2000u);
  }
}

TEST_F(DeviceLookupTest, PaddingReadsZerosAndIsNoKey) {
  AddTable(SgdTable("t", 64, 3));
  NewStep();
  SetBatch({{{-1, 4, -1}, 0, true, -1}, {{-1}, 0, false, 0}, {{0, 0}, 0, true, 0}});
  const Wanted wanted = Lookup();
  EXPECT_THAT(wanted.keys(), UnorderedElementsAre(4, -1)) << "-1 is padding of the first feature alone";
  EXPECT_THAT(RowsOf(0), ElementsAre(0, 0, 0, kUntouched, kUntouched, kUntouched, 0, 0, 0));
  EXPECT_THAT(RowsOf(2), Each(0));
  Install({{0, {4, -1}, 1, true}});
  Gather();
  ExpectRow(0, 1, 4, 1);
  ExpectRow(1, 0, -1, 1);
  EXPECT_THAT(RowsOf(2), Each(0));
}

TEST_F(DeviceLookupTest, EmptyBatches) {
  AddTable(SgdTable("t", 1, 3));
  NewStep();
  SetBatch({});
  EXPECT_THAT(Lookup().bases, IsEmpty());
  Gather();
  SetBatch({{{}}, {{}}});
  EXPECT_THAT(Lookup().reads, ElementsAre(0));
  Gather();
  EXPECT_THAT(Install({}), IsEmpty());
  EXPECT_THAT(Install({{0, {}, 0, true}}), IsEmpty());
}

TEST_F(DeviceLookupTest, InferenceCountsKeysAndUsesNoRow) {
  AddTable(SgdTable("t", 64, 3));
  Step({1, 2});
  const HetDevRowState before = Inspect(1).state;
  NewStep();
  SetBatch({{{1, 1, 2, 5, 5, 1}}});
  for (int round = 0; round < 2; ++round) {  // no stamp tells them apart
    const Wanted wanted = Lookup(0);
    EXPECT_THAT(wanted.reads, ElementsAre(3));
    EXPECT_THAT(wanted.hits, ElementsAre(2));
    EXPECT_THAT(wanted.keys(), ElementsAre(5));
  }
  EXPECT_EQ(Inspect(1).state.stamp, before.stamp);
  EXPECT_EQ(Inspect(1).state.frequency, before.frequency);
}

TEST_F(DeviceLookupTest, TrainingUsesARowOnceACall) {
  AddTable(SgdTable("t", 64, 3));
  Step({1, 2});
  EXPECT_EQ(Inspect(1).state.frequency, 1u);
  Step({1, 1, 1, 1, 2});
  Step({1, 1});
  EXPECT_EQ(Inspect(1).state.frequency, 3u);
  EXPECT_EQ(Inspect(1).state.stamp, 3u);
  EXPECT_EQ(Inspect(2).state.frequency, 2u);
  EXPECT_EQ(Inspect(2).state.stamp, 2u);
}

TEST_F(DeviceLookupTest, FeaturesThatWantNoRows) {
  AddTable(SgdTable("t", 64, 3));
  Step({1});
  NewStep();
  SetBatch({{{1, 2}}});
  features_[0].rows = nullptr;
  EXPECT_THAT(Lookup().keys(), ElementsAre(2));
  Install({{0, {2}, 0, true}});
  Gather();
  EXPECT_THAT(RowsOf(0), Each(kUntouched));
}

TEST_F(DeviceLookupTest, GatherNamesTheIdWithoutARow) {
  AddTable(SgdTable("clicks", 64, 3));
  NewStep();
  SetBatch({{{}}, {{1, 2, 3}}});
  Lookup();
  Install({{0, {1, 3}, 0, true}});
  EXPECT_EQ(HetDevGather(context_, call_, &batch_, nullptr), HET_DEV_INVALID);
  EXPECT_THAT(HetDevError(), AllOf(HasSubstr("'clicks'"), HasSubstr("feature 1"), HasSubstr("id number 1")));
  SetBatch({{{1}}});
  EXPECT_EQ(HetDevGather(context_, call_, &batch_, nullptr), HET_DEV_INVALID) << "another batch";
  EXPECT_THAT(HetDevError(), HasSubstr("HetDevLookup"));
}

TEST_F(DeviceLookupTest, SecondLookupOfACallFindsItsRows) {
  AddTable(SgdTable("t", 64, 3));
  NewStep();
  SetBatch({{{1, 2, 2}}});
  Lookup();
  Install({{0, {1}, 0, true}, {0, {2}, 3, false}});
  const Wanted wanted = Lookup(0);
  EXPECT_THAT(wanted.bases, IsEmpty());
  EXPECT_THAT(wanted.hits, ElementsAre(2));
  ExpectRow(0, 1, 2, 3);
  ExpectRow(0, 2, 2, 3);
  HetDevResetCall(context_, call_);
  EXPECT_THAT(Lookup(0).keys(), ElementsAre(2)) << "rows of the call are gone with it";
}

TEST_F(DeviceLookupTest, WrongBatches) {
  AddTable(SgdTable("t", 64, 3));
  NewStep();
  SetBatch({{{1, 2}}});
  HetDevWanted wanted;
  const auto refused = [&](const char* text) {
    EXPECT_EQ(HetDevLookup(context_, call_, &batch_, 1, nullptr, &wanted), HET_DEV_INVALID);
    EXPECT_THAT(HetDevError(), HasSubstr(text));
  };
  features_[0].use = 3;
  refused("use 3");
  features_[0].use = 0;
  features_[0].ids = nullptr;
  refused("no ids");
  SetBatch({{{1, 2}}});
  features_[0].n = uint64_t{1} << 32;
  refused("4294967296 ids");
  SetBatch({{{1, 2}}});
  uses_[0].stamp = uint64_t{1} << 32;
  refused("stamp 4294967296");
  uses_[0].stamp = 1;
  uses_[0].push_bound = -1;
  refused("push_bound -1");
  uses_[0].push_bound = 0;
  const std::vector<HetDevUse> twice = {uses_[0], uses_[0]};
  batch_.uses = twice.data();
  batch_.n_uses = 2;
  refused("has a use already");
  batch_.n_uses = 1;
  EXPECT_EQ(HetDevLookup(context_, call_, &batch_, 1, nullptr, &wanted), HET_DEV_OK) << HetDevError();
}

TEST_F(DeviceLookupTest, MemoryOfAnotherDevice) {
  AddTable(SgdTable("t", 64, 2));
  Step({1, 2}, 1);
  NewStep();
  SetBatch({{{2, 1}}});
  // Addresses that nobody may touch, as a device has them, and where their bytes really are.
  char device[256];
  int64_t ids[2] = {2, 1};
  float rows[4] = {};
  HetDevHostAlias(device, sizeof(ids), ids);
  HetDevHostAlias(device + 128, sizeof(rows), rows);
  features_[0].ids = reinterpret_cast<const int64_t*>(device);
  features_[0].rows = reinterpret_cast<float*>(device + 128);
  std::fill(std::begin(device), std::end(device), 0x55);
  EXPECT_THAT(Lookup().bases, IsEmpty());
  HetDevHostUnalias(device);
  HetDevHostUnalias(device + 128);
  EXPECT_THAT(rows, ElementsAre(1002, 1002.125, 1001, 1001.125));
  EXPECT_THAT(device, Each(0x55));
}

}  // namespace
}  // namespace het::testing
