// Sums of gradients on a device, for tests of HetDevSum and HetDevTick.
#ifndef HET_TESTS_CPP_TESTING_DEVICE_SUMS_H_
#define HET_TESTS_CPP_TESTING_DEVICE_SUMS_H_

#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "tests/cpp/testing/device_world.h"
#include "tests/cpp/testing/random.h"

namespace het::testing {

// Tables of zeros whose learning rate is -1: after a tick a row, and its update, is the sum of its key.
class DeviceSums : public DeviceWorld {
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

}  // namespace het::testing

#endif  // HET_TESTS_CPP_TESTING_DEVICE_SUMS_H_
