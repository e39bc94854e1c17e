// Which rows HetDevSum sums and HetDevTick ticks: features whose gradient is all zero give no tick, which is
// known only when all gradients have been read.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/ext/gpu/device/host/streams.h"
#include "tests/ext/gpu/device/library_fixture.h"

namespace het::testing {
namespace {

using Gradients = std::vector<float>;

// Two features of one table, one after the other in memory.
class DeviceSumsTest : public LibraryFixture {
 protected:
  void SetFeatures(const Keys& first, const Keys& second) {
    Keys ids = first;
    ids.insert(ids.end(), second.begin(), second.end());
    SetBatch(ids);
    Split({first.size(), second.size()});
    Install(Lookup());
    ASSERT_EQ(HetDevGather(context_, call_, &batch_, stream_), HET_DEV_OK) << HetDevError();
  }
  // Of each id, in the order of SetFeatures.
  void SetGradients(const Gradients& of_ids) {
    Gradients floats;
    for (const float of_id : of_ids) floats.insert(floats.end(), kDim, of_id);
    ASSERT_EQ(
        HetDevCopyIn(context_, gradients_->get(), floats.data(), floats.size() * sizeof(float), stream_),
        HET_DEV_OK);
  }
  HetDevSummed SumAll(const uint8_t* active = nullptr) {
    operations_ = CountOperations([&] { EXPECT_EQ(TrySum(active), HET_DEV_OK) << HetDevError(); });
    EXPECT_EQ(wanted_.n, 0u);
    return summed_;
  }
  // The ticks and the first float of a row.
  std::pair<uint32_t, float> RowOf(int64_t key) {
    std::vector<float> row;
    const uint32_t ticks = Inspect(key, &row).ticks;
    return {ticks, row[0]};
  }

  uint64_t operations_ = 0;
};

// Key 2 is in both features, and gets a tick by the other one.
TEST_F(DeviceSumsTest, RowsOfAFeatureWithoutGradientGetNoTick) {
  SetFeatures({1, 2}, {2, 3});
  SetGradients({1, 1, 1, 1});
  EXPECT_EQ(SumAll().uniques, 3u);
  const uint64_t usual = operations_;
  SetGradients({1, 1, 0, -0.0f});
  const HetDevSummed summed = SumAll();
  EXPECT_EQ(summed.uniques, 2u);
  EXPECT_EQ(summed.ticks[0], 2u);
  EXPECT_EQ(summed.active[0], 1);
  EXPECT_EQ(summed.active[1], 0);
  EXPECT_EQ(operations_, usual + 1) << "the sums once more";
  EXPECT_EQ(Tick(call_), HET_DEV_OK) << HetDevError();
  EXPECT_EQ(RowOf(1), std::pair(1u, 0.0f));
  EXPECT_EQ(RowOf(2), std::pair(1u, 1.0f));
  EXPECT_EQ(RowOf(3), std::pair(0u, 3.0f));
}

// Given features count even if their gradient is zero, and what others have is not read.
TEST_F(DeviceSumsTest, GivenFeaturesCount) {
  SetFeatures({1, 2}, {2, 3});
  SetGradients({0, 0, 1, NAN});
  const uint8_t active[] = {1, 0};
  features_[1].gradients = nullptr;
  const HetDevSummed summed = SumAll(active);
  EXPECT_EQ(summed.uniques, 2u);
  EXPECT_EQ(summed.non_finite, 0);
  EXPECT_EQ(Tick(call_), HET_DEV_OK) << HetDevError();
  EXPECT_EQ(RowOf(2), std::pair(1u, 2.0f));
  EXPECT_EQ(RowOf(3), std::pair(0u, 3.0f));
}

// A segment of many chunks, whose active ids are in the last one; and one without any.
TEST_F(DeviceSumsTest, RowsThatOccurOften) {
  Keys often(300, 7);
  std::fill(often.begin() + 150, often.end(), 8);
  SetFeatures(often, {1, 7, 7});
  for (int turn = 0; turn < 20; ++turn) {
    HetDevHostSeed(static_cast<uint64_t>(turn));
    Gradients of_ids(303);
    of_ids[300] = of_ids[302] = 1;
    SetGradients(of_ids);
    EXPECT_EQ(SumAll().uniques, 2u) << "in turn " << turn;
    EXPECT_EQ(Tick(call_), HET_DEV_OK) << HetDevError();
    const auto ticks = static_cast<uint32_t>(turn) + 1;
    EXPECT_EQ(RowOf(7), std::pair(ticks, 7.0f - static_cast<float>(ticks)));
    EXPECT_EQ(RowOf(8), std::pair(0u, 8.0f));
  }
}

}  // namespace
}  // namespace het::testing
