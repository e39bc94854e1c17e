// HetDevTick: whose updates leave, in which order, and what it has to follow.
#include <gmock/gmock.h>

#include "tests/cpp/testing/device/device_sums.h"

namespace het::testing {
namespace {

using ::testing::HasSubstr;

class DeviceTickTest : public DeviceSums {};

TEST_F(DeviceTickTest, DueRowsOfSeveralTablesLeaveInOrder) {
  MakeTables({3, 16, 2});
  uses_[0].push_bound = 1;
  uses_[2].push_bound = 0;
  const std::vector<Feature> features = {{{5, -1, 3}, 0}, {{1, 2}, 1}, {{9, 4}, 2}, {{3}, 0}};
  std::vector<std::vector<float>> gradients;
  SetBatch(features);
  for (const Feature& feature : features) gradients.push_back(RandomGradients(feature));
  SetGradients(gradients);
  Result result = SumAll();
  EXPECT_EQ(result.uniques, 7u);
  EXPECT_EQ(result.due, 2u);
  std::vector<Update> due = Tick();
  ASSERT_EQ(due.size(), 2u);
  EXPECT_EQ(due[0], (Update{2, 4, 1, {gradients[2][2], gradients[2][3]}}));
  EXPECT_EQ(due[1], (Update{2, 9, 1, {gradients[2][0], gradients[2][1]}}));
  EXPECT_EQ(Inspect(4, 2).state.base, 6);
  EXPECT_EQ(Inspect(4, 2).state.ticks, 0u);

  const std::vector<float> update = Inspect(5, 0).update;
  result = Sum();
  EXPECT_EQ(result.due, 5u);
  due = Tick();
  ASSERT_EQ(due.size(), 5u);
  const std::vector<std::pair<uint32_t, int64_t>> order = {{0, 3}, {0, 5}, {0, -1}, {2, 4}, {2, 9}};
  for (size_t i = 0; i < order.size(); ++i) {
    EXPECT_EQ(std::make_pair(due[i].use, due[i].key), order[i]);
    EXPECT_EQ(due[i].ticks, due[i].use == 0 ? 2u : 1u);
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(due[1].update[i], update[i] + gradients[0][i]);
  EXPECT_EQ(Inspect(5, 0).state.base, 7);
  EXPECT_EQ(Inspect(1, 1).state.ticks, 2u);
}

TEST_F(DeviceTickTest, UpdatesOfRowsOfTheCallLeaveWithTheirTick) {
  MakeTables({2, 3});
  SetBatch({{{1, 2}, 0}, {{1}, 1}});
  SetGradients({{1, 2, 3, 4}, {5, 6, 7}});
  // 1 of the first table is in the cache, the others are with the call.
  InstallZeros({{0, 1}}, true);
  InstallZeros({{0, 2}, {1, 1}}, false);
  EXPECT_EQ(Sum().due, 2u);
  const std::vector<Update> due = Tick();
  ASSERT_EQ(due.size(), 2u);
  EXPECT_EQ(due[0], (Update{0, 2, 1, {3, 4}}));
  EXPECT_EQ(due[1], (Update{1, 1, 1, {5, 6, 7}}));
  EXPECT_EQ(Inspect(1, 0).state.ticks, 1u);
  EXPECT_FALSE(Has(2, 0));
}

TEST_F(DeviceTickTest, TickMustFollowItsSum) {
  MakeTables({2});
  SetBatch({{{1, 2}}});
  SetGradients({{1, 2, 3, 4}});
  HetDevExport due;
  auto refused = [&] {
    EXPECT_EQ(HetDevTick(context_, call_, &batch_, nullptr, &due), HET_DEV_INVALID);
    EXPECT_THAT(HetDevError(), HasSubstr("sum again"));
    EXPECT_EQ(due.n, 0u);
  };
  refused();
  SumAll();
  Tick();
  refused();  // once
  Sum();
  Lookup(0);
  refused();  // something came in between
  Sum();
  Sum();
  HetDevResetCall(context_, call_);
  refused();
  HetDevCall* other = nullptr;
  ASSERT_EQ(HetDevCreateCall(context_, &other), HET_DEV_OK);
  EXPECT_EQ(HetDevTick(context_, other, &batch_, nullptr, &due), HET_DEV_INVALID);
  HetDevDestroyCall(context_, other);
  Sum();
  features_[0].n = 1;
  EXPECT_EQ(HetDevTick(context_, call_, &batch_, nullptr, &due), HET_DEV_INVALID);
  EXPECT_THAT(HetDevError(), HasSubstr("same batch"));
  EXPECT_EQ(Inspect(1).state.ticks, 1u);
}

// Scratch memory is taken in blocks, so a batch has to be large to need more than the first one.
TEST_F(DeviceTickTest, OutOfMemoryChangesNothing) {
  constexpr int64_t kKeys = 20000;
  std::vector<Feature> features = {{{1, 2}, 0}, {{}, 1}};
  for (int64_t key = 0; key < kKeys; ++key) features[1].ids.push_back(key);
  uint64_t failed[2] = {0, 0};
  for (const bool in_tick : {false, true}) {
    for (uint64_t n = 1;; ++n) {
      TearDown();
      tables_.clear();
      configs_.clear();
      uses_.clear();
      SetUp();
      MakeTables({3, 16}, 4 * kKeys);
      uses_[1].push_bound = 0;
      SetBatch(features);
      SetGradients({std::vector<float>(6, 1.0f), std::vector<float>(kKeys * 16, 1.0f)});
      std::vector<std::pair<uint32_t, int64_t>> missing;
      for (const int64_t key : features[0].ids) missing.emplace_back(0, key);
      for (const int64_t key : features[1].ids) missing.emplace_back(1, key);
      InstallZeros(missing, true);
      if (in_tick) Sum();
      Result result;
      HetDevExport due = {};
      HetDevFailAllocation(context_, n);
      const int code =
          in_tick ? HetDevTick(context_, call_, &batch_, nullptr, &due) : TrySum(1, nullptr, &result);
      HetDevFailAllocation(context_, 0);
      if (code == HET_DEV_OK) break;
      ++failed[in_tick];
      ASSERT_EQ(code, HET_DEV_OUT_OF_MEMORY) << HetDevError();
      EXPECT_THAT(HetDevError(), HasSubstr("memory"));
      EXPECT_EQ(Inspect(1, 0).state.ticks, 0u);
      for (const int64_t key : {int64_t{0}, kKeys - 1}) {
        EXPECT_EQ(Inspect(key, 1).state.base, 5);
        EXPECT_EQ(Inspect(key, 1).row, std::vector<float>(16));
      }
      // The step can be done all the same.
      EXPECT_EQ(Sum().due, static_cast<uint64_t>(kKeys));
      EXPECT_EQ(Tick().size(), static_cast<size_t>(kKeys));
      EXPECT_EQ(Inspect(1, 0).state.ticks, 1u);
      EXPECT_EQ(Inspect(0, 1).state.base, 6);
    }
  }
  EXPECT_GT(failed[0], 0u);
  EXPECT_GT(failed[1], 0u);
}

}  // namespace
}  // namespace het::testing
