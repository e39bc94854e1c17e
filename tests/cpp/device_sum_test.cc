// HetDevSum: which keys, which sums, and what it refuses; and HetDevTick after it.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "het_tf/core/batch_plan.h"
#include "het_tf/core/row_ops.h"
#include "tests/cpp/testing/device_world.h"
#include "tests/cpp/testing/random.h"

namespace het::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// Tables of zeros whose learning rate is -1: after a tick a row, and its update, is the sum of its key.
class DeviceSumTest : public DeviceWorld {
 protected:
  void TearDown() override {
    gradients_.clear();
    DeviceWorld::TearDown();
  }

  using Sums = std::map<std::pair<uint32_t, int64_t>, std::vector<float>>;  // by (use, key)

  void MakeTables(const std::vector<uint32_t>& dims, uint64_t capacity = 4096, int keep_updates = 1) {
    for (const uint32_t dim : dims) {
      HetDevTableConfig config = SgdTable("t", capacity, dim);
      config.keep_updates = keep_updates;
      AddTable(config);
      uses_.back().learning_rate = -1;
    }
    NewStep();
  }

  // gradients[f]: of feature f, on the device. Begins at 4 * shift bytes past a multiple of 16.
  void SetGradients(const std::vector<std::vector<float>>& gradients, size_t shift = 0) {
    gradients_.clear();
    gradients_.reserve(gradients.size());
    for (size_t f = 0; f < gradients.size(); ++f) {
      std::vector<float> shifted(shift + 1, -7.0f);
      shifted.insert(shifted.begin() + static_cast<int64_t>(shift), gradients[f].begin(), gradients[f].end());
      gradients_.emplace_back(context_, shifted.data(), shifted.size() * sizeof(float));
      features_[f].gradients = features_[f].n == 0 ? nullptr : gradients_.back().as<float>() + shift;
    }
  }

  // Installs zeros for all that is missing.
  void InstallZeros(const std::vector<std::pair<uint32_t, int64_t>>& wanted, bool admit) {
    for (uint32_t u = 0; u < uses_.size(); ++u) {
      Keys keys;
      for (const auto& [use, key] : wanted) {
        if (use == u) keys.push_back(key);
      }
      const std::vector<int64_t> bases(keys.size(), 5);
      const std::vector<uint8_t> admits(keys.size(), admit);
      const std::vector<float> rows(keys.size() * configs_[u].row_floats);
      const HetDevAnswer answer = {u, keys.size(), keys.data(), bases.data(), admits.data(), rows.data()};
      HetDevExport victims;
      ASSERT_EQ(HetDevInstall(context_, call_, &batch_, &answer, 1, nullptr, &victims), HET_DEV_OK)
          << HetDevError();
    }
  }

  struct Result {
    std::vector<std::pair<uint32_t, int64_t>> wanted;
    uint64_t uniques = 0, due = 0;
    std::vector<bool> active;
    std::vector<uint64_t> ticks;
    bool non_finite = false;
    uint32_t bad_use = 0;
    int64_t bad_key = 0;
  };
  int TrySum(float scale, const uint8_t* active, Result* result) {
    HetDevWanted wanted;
    HetDevSummed summed;
    const int code = HetDevSum(context_, call_, &batch_, scale, active, nullptr, &wanted, &summed);
    if (code != HET_DEV_OK) return code;
    *result = Result();
    for (uint64_t i = 0; i < wanted.n; ++i) {
      EXPECT_EQ(wanted.bases[i], HET_DEV_NO_BASE);
      result->wanted.emplace_back(wanted.use[i], wanted.keys[i]);
    }
    for (uint32_t f = 0; f < batch_.n_features; ++f) result->active.push_back(summed.active[f] != 0);
    if (wanted.n > 0) return code;
    result->uniques = summed.uniques;
    result->due = summed.due;
    result->ticks.assign(summed.ticks, summed.ticks + uses_.size());
    result->non_finite = summed.non_finite != 0;
    result->bad_use = summed.bad_use;
    result->bad_key = summed.bad_key;
    return code;
  }
  Result Sum(float scale = 1, const uint8_t* active = nullptr) {
    Result result;
    EXPECT_EQ(TrySum(scale, active, &result), HET_DEV_OK) << HetDevError();
    return result;
  }
  // Sums; what is wanted is installed first.
  Result SumAll(float scale = 1, const uint8_t* active = nullptr, bool admit = true) {
    Result result = Sum(scale, active);
    if (!result.wanted.empty()) {
      InstallZeros(result.wanted, admit);
      result = Sum(scale, active);
      EXPECT_TRUE(result.wanted.empty());
    }
    return result;
  }
  std::vector<Update> Tick() {
    HetDevExport due;
    EXPECT_EQ(HetDevTick(context_, call_, &batch_, nullptr, &due), HET_DEV_OK) << HetDevError();
    return Copied(due);
  }

  // The rule of device_cache.h, written down plainly.
  Sums Expected(const std::vector<Feature>& features, const std::vector<std::vector<float>>& gradients,
                float scale, const std::vector<bool>& active) const {
    std::map<std::pair<uint32_t, int64_t>, std::vector<const float*>> occurrences;
    for (size_t f = 0; f < features.size(); ++f) {
      const size_t dim = configs_[features[f].use].dim;
      for (size_t i = 0; i < features[f].ids.size(); ++i) {
        const int64_t id = features[f].ids[i];
        if (!active[f] || (features[f].has_padding && id == features[f].padding_id)) continue;
        occurrences[{features[f].use, id}].push_back(&gradients[f][i * dim]);
      }
    }
    Sums sums;
    for (const auto& [key, all] : occurrences) {
      const size_t dim = configs_[key.first].dim;
      std::vector<float> total(dim);
      for (size_t begin = 0; begin < all.size(); begin += 64) {
        std::vector<float> chunk(dim);
        for (size_t o = begin; o < all.size() && o < begin + 64; ++o) {
          for (size_t i = 0; i < dim; ++i) chunk[i] += all[o][i];
        }
        for (size_t i = 0; i < dim; ++i) total[i] += chunk[i];
      }
      for (float& x : total) x *= scale;
      sums[key] = total;
    }
    return sums;
  }
  void ExpectSums(const Sums& sums) {
    for (const auto& [key, sum] : sums) {
      const Row row = Inspect(key.second, key.first);
      ASSERT_TRUE(row.state.found);
      EXPECT_EQ(row.state.ticks, 1u);
      for (size_t i = 0; i < sum.size(); ++i) {
        ASSERT_EQ(row.row[i], sum[i]) << "use " << key.first << ", key " << key.second << ", element " << i;
        ASSERT_EQ(row.update[i], sum[i]);
      }
    }
  }

  std::vector<float> RandomGradients(const Feature& feature) {
    std::vector<float> gradients(feature.ids.size() * configs_[feature.use].dim);
    for (float& x : gradients) x = static_cast<float>(random_.Unit() * 2 - 1);
    return gradients;
  }

  Random random_{5};
  std::vector<DeviceArray> gradients_;
};

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

TEST_F(DeviceSumTest, TheCallerMayTellWhichFeaturesCount) {
  MakeTables({2});
  SetBatch({{{1}}, {{2}}, {{4}}});
  SetGradients({{0, 0}, {3, 3}, {5, 5}});
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

TEST_F(DeviceSumTest, DueRowsOfSeveralTablesLeaveInOrder) {
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

TEST_F(DeviceSumTest, UpdatesOfRowsOfTheCallLeaveWithTheirTick) {
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

TEST_F(DeviceSumTest, TickMustFollowItsSum) {
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

TEST_F(DeviceSumTest, GradientsMustBeGiven) {
  MakeTables({2});
  SetBatch({{{1}}});
  Result result;
  EXPECT_EQ(TrySum(1, nullptr, &result), HET_DEV_INVALID);
  EXPECT_THAT(HetDevError(), HasSubstr("feature 0 has no gradients"));
}

// Scratch memory is taken in blocks, so a batch has to be large to need more than the first one.
TEST_F(DeviceSumTest, OutOfMemoryChangesNothing) {
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
