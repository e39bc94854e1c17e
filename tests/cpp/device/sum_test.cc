// HetDevSum: which keys, which sums, and what it refuses.
#include <gmock/gmock.h>

#include <cstring>
#include <limits>

#include "het_tf/core/plan/batch_plan.h"
#include "het_tf/core/plan/row_ops.h"
#include "tests/cpp/testing/device/device_sums.h"

namespace het::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

class DeviceSumTest : public DeviceSums {};

TEST_F(DeviceSumTest, SumsInTheOrderOfTheBatch) {
  MakeTables({1, 3, 4, 16, 33});
  for (uint64_t round = Scaled(40); round > 0; --round) {
    for (uint32_t u = 0; u < uses_.size(); ++u) {
      uint64_t discarded;
      ASSERT_EQ(HetDevForget(context_, tables_[u], HET_DEV_DROP, nullptr, nullptr, &discarded), HET_DEV_OK);
    }
    NewStep();
    std::vector<Feature> features(1 + random_.Below(7));
    const uint64_t keys = random_.Pick(std::vector<uint64_t>{1, 3, 20, 400});
    for (Feature& feature : features) {
      feature.use = static_cast<uint32_t>(random_.Below(uses_.size()));
      feature.ids.resize(random_.Below(300));
      for (int64_t& id : feature.ids) id = random_.Between(-1, static_cast<int64_t>(keys) - 1);
      feature.has_padding = random_.Chance(0.5);
      feature.padding_id = random_.Between(-1, 1);
    }
    std::vector<std::vector<float>> gradients;
    std::vector<bool> active;
    for (const Feature& feature : features) {
      gradients.push_back(RandomGradients(feature));
      active.push_back(!feature.ids.empty());
      if (random_.Chance(0.2)) {
        gradients.back().assign(gradients.back().size(), random_.Chance(0.5) ? 0.0f : -0.0f);
        active.back() = false;
      }
    }
    SetBatch(features);
    SetGradients(gradients, random_.Below(4));
    const float scale = random_.Chance(0.5) ? 1.0f : 0.3f;
    const Sums expected = Expected(features, gradients, scale, active);
    const Result result = SumAll(scale);
    EXPECT_EQ(result.active, active);
    EXPECT_EQ(result.uniques, expected.size());
    std::vector<uint64_t> ticks(uses_.size());
    for (const auto& sum : expected) ++ticks[sum.first.first];
    EXPECT_EQ(result.ticks, ticks);
    EXPECT_EQ(result.due, 0u);
    EXPECT_FALSE(result.non_finite);
    EXPECT_TRUE(Tick().empty());
    ExpectSums(expected);
    if (HasFatalFailure()) return;
  }
}

TEST_F(DeviceSumTest, IsTheCpusSumOfKeysThatOccurUpTo64Times) {
  constexpr uint32_t kDim = 8;
  MakeTables({kDim});
  std::vector<Feature> features(3);
  for (Feature& feature : features) {
    for (int64_t id = 0; id < 50; ++id) feature.ids.push_back(id % 7);
    feature.ids.push_back(99);
  }
  std::vector<std::vector<float>> gradients;
  for (const Feature& feature : features) gradients.push_back(RandomGradients(feature));
  SetBatch(features);
  SetGradients(gradients);
  EXPECT_EQ(SumAll().uniques, 8u);
  Tick();

  std::vector<FeatureIds> ids;
  std::vector<const float*> addresses;
  for (size_t f = 0; f < features.size(); ++f) {
    ids.push_back({0, Span<const int64_t>(features[f].ids.data(), features[f].ids.size()), {}});
    addresses.push_back(gradients[f].data());
  }
  BatchPlan plan;
  ThreadPool pool(1);
  plan.Build(Span<const FeatureIds>(ids.data(), ids.size()), 1, PartitionId(), &pool);
  ASSERT_EQ(plan.groups().size(), 1u);
  const BatchPlan::Group& group = plan.groups()[0];
  std::vector<float> sums(group.uniques * kDim);
  std::vector<uint8_t> touched(group.uniques), active(features.size(), 1);
  SumGroup(plan, group, Span<const float* const>(addresses.data(), addresses.size()), active.data(), kDim,
           sums.data(), touched.data());
  ASSERT_EQ(group.uniques, 8u);
  for (size_t u = 0; u < group.uniques; ++u) {
    const std::vector<float> row = Inspect(plan.keys(group)[u]).row;
    EXPECT_EQ(std::memcmp(row.data(), &sums[u * kDim], kDim * sizeof(float)), 0) << plan.keys(group)[u];
  }
}

TEST_F(DeviceSumTest, HotIdsAreSummedInChunks) {
  MakeTables({16, 3});
  for (const size_t n : {63, 64, 65, 127, 128, 129, 192, 1000, 5000}) {
    NewStep();
    for (uint32_t u = 0; u < uses_.size(); ++u) {
      uint64_t discarded;
      ASSERT_EQ(HetDevForget(context_, tables_[u], HET_DEV_DROP, nullptr, nullptr, &discarded), HET_DEV_OK);
    }
    // One id n times, another one among them, and a third that ends the batch.
    std::vector<Feature> features(3);
    for (size_t i = 0; i < n; ++i) {
      features[i % 2].ids.push_back(3);
      if (i % 3 == 0) features[0].ids.push_back(8);
      features[2].ids.push_back(-4);
    }
    features[2].use = 1;
    std::vector<std::vector<float>> gradients;
    for (const Feature& feature : features) gradients.push_back(RandomGradients(feature));
    SetBatch(features);
    SetGradients(gradients);
    EXPECT_EQ(SumAll(0.5f).uniques, 3u);
    Tick();
    ExpectSums(Expected(features, gradients, 0.5f, {true, true, true}));
    if (HasFatalFailure()) return;
  }
}

TEST_F(DeviceSumTest, FeaturesOfZerosAreLeftOut) {
  MakeTables({2});
  SetBatch({{{1, 2}}, {{2, 3}}, {{}}});
  SetGradients({{0, 0, -0.0f, 0}, {0, 0, 0, 1}, {}});
  Result result = Sum();
  // Keys of the first feature alone are nobody's business; 2 and 3 are absent.
  EXPECT_THAT(result.wanted, UnorderedElementsAre(std::make_pair(0u, 2), std::make_pair(0u, 3)));
  result = SumAll();
  EXPECT_THAT(result.active, ElementsAre(false, true, false));
  EXPECT_EQ(result.uniques, 2u);
  Tick();
  EXPECT_FALSE(Has(1));
  EXPECT_EQ(Inspect(2).state.ticks, 1u);
  EXPECT_EQ(Inspect(3).row, (std::vector<float>{0, 1}));
}

TEST_F(DeviceSumTest, WhatIsNotZeroCounts) {
  MakeTables({5});
  SetBatch({{{1}}, {{2}}, {{3, 4}}, {{5}}});
  SetGradients({{0, 0, 0, 0, -1e-30f}, {0, kNaN, 0, 0, 0}, std::vector<float>(10), {0, 0, 2, 0, 0}});
  const Result result = SumAll();
  EXPECT_THAT(result.active, ElementsAre(true, true, false, true));
  EXPECT_EQ(result.bad_key, 2);
}

TEST_F(DeviceSumTest, TheCallerMayTellWhichFeaturesCount) {
  MakeTables({2});
  SetBatch({{{1}}, {{2}}, {{4, 5}}});
  SetGradients({{0, 0}, {3, 3}, {5, 5, 5, 5}});
  features_[2].gradients = nullptr;  // not needed
  const uint8_t active[] = {1, 0, 0};
  const Result result = SumAll(1, active);
  EXPECT_THAT(result.active, ElementsAre(true, false, false));
  EXPECT_EQ(result.uniques, 1u);
  Tick();
  EXPECT_EQ(Inspect(1).state.ticks, 1u);
  EXPECT_FALSE(Has(2));
}

TEST_F(DeviceSumTest, NothingToDoIsFine) {
  MakeTables({2});
  SetBatch({});
  EXPECT_EQ(Sum().uniques, 0u);
  EXPECT_TRUE(Tick().empty());
  SetBatch({{{7, 7}, 0, true, 7}});
  SetGradients({{1, 1, 1, 1}});  // of padding
  const Result result = Sum();
  EXPECT_TRUE(result.wanted.empty());
  EXPECT_THAT(result.active, ElementsAre(true));
  EXPECT_EQ(result.uniques, 0u);
  EXPECT_TRUE(Tick().empty());
}

TEST_F(DeviceSumTest, WantsRowsThatAreAbsentOrInvalidOnce) {
  MakeTables({2, 2});
  Keys many(500, 6);
  SetBatch({{{4, 5}}, {many, 1}});
  SetGradients({{1, 1, 1, 1}, std::vector<float>(1000, 1.0f)});
  EXPECT_THAT(Sum().wanted,
              UnorderedElementsAre(std::make_pair(0u, 4), std::make_pair(0u, 5), std::make_pair(1u, 6)));
  HetDevExport due;
  EXPECT_EQ(HetDevTick(context_, call_, &batch_, nullptr, &due), HET_DEV_INVALID);
  EXPECT_THAT(HetDevError(), HasSubstr("wanted no rows"));
  SumAll();
  uint64_t discarded;
  ASSERT_EQ(HetDevForget(context_, tables_[0], HET_DEV_INVALIDATE, nullptr, nullptr, &discarded), HET_DEV_OK);
  EXPECT_THAT(Sum().wanted, UnorderedElementsAre(std::make_pair(0u, 4), std::make_pair(0u, 5)));
  EXPECT_EQ(SumAll().uniques, 3u);
}

TEST_F(DeviceSumTest, TheFirstKeyWithNaNOrInfIsNamed) {
  MakeTables({3, 2});
  const std::vector<Feature> features = {{{9, 10, 11}, 1}, {{-5, 7, 8, 7}, 0}};
  SetBatch(features);
  const std::vector<float> good1 = {1, 1, 1, 1, 1, 1};
  const std::vector<float> good0(12, 1.0f);
  SetGradients({good1, good0});
  EXPECT_FALSE(SumAll().non_finite);
  auto with = [](std::vector<float> all, size_t at, float value) {
    all[at] = value;
    return all;
  };
  struct {
    std::vector<float> of1, of0;
    uint32_t use;
    int64_t key;
  } cases[] = {
      {with(good1, 3, kNaN), good0, 1, 10},
      {with(good1, 5, kInf), with(good0, 11, -kInf), 0, 7},
      {with(good1, 0, kNaN), with(with(good0, 0, kNaN), 8, kNaN), 0, 8},  // -5 is the largest unsigned number
      {with(with(good1, 4, kNaN), 2, kInf), good0, 1, 10},
  };
  for (const auto& c : cases) {
    SetGradients({c.of1, c.of0});
    const Result result = Sum();
    EXPECT_TRUE(result.non_finite);
    EXPECT_EQ(result.bad_use, c.use);
    EXPECT_EQ(result.bad_key, c.key);
    HetDevExport due;
    EXPECT_EQ(HetDevTick(context_, call_, &batch_, nullptr, &due), HET_DEV_INVALID);
  }
  // Finite gradients with an infinite sum, and a scale that makes one.
  SetGradients({good1, with(with(good0, 3, 3e38f), 9, 3e38f)});
  EXPECT_EQ(Sum().bad_key, 7);
  SetGradients({with(good1, 0, 1e30f), good0});
  EXPECT_FALSE(Sum().non_finite);
  EXPECT_EQ(Sum(1e10f).bad_key, 9);
  // A hot one.
  SetBatch({{Keys(300, 9), 1}});
  SetGradients({with(std::vector<float>(600, 1.0f), 501, kNaN)});
  EXPECT_EQ(Sum().bad_key, 9);
  EXPECT_EQ(Inspect(9, 1).state.ticks, 0u);
}

TEST_F(DeviceSumTest, GradientsMustBeGiven) {
  MakeTables({2});
  SetBatch({{{1}}});
  Result result;
  EXPECT_EQ(TrySum(1, nullptr, &result), HET_DEV_INVALID);
  EXPECT_THAT(HetDevError(), HasSubstr("feature 0 has no gradients"));
}

}  // namespace
}  // namespace het::testing
