#include "tests/cpp/testing/device/device_sums.h"

#include <map>
#include <utility>
#include <vector>

namespace het::testing {

void DeviceSums::TearDown() {
  gradients_.clear();
  DeviceWorld::TearDown();
}

void DeviceSums::MakeTables(const std::vector<uint32_t>& dims, uint64_t capacity, int keep_updates) {
  for (const uint32_t dim : dims) {
    HetDevTableConfig config = SgdTable("t", capacity, dim);
    config.keep_updates = keep_updates;
    AddTable(config);
    uses_.back().learning_rate = -1;
  }
  NewStep();
}

void DeviceSums::SetGradients(const std::vector<std::vector<float>>& gradients, size_t shift) {
  gradients_.clear();
  gradients_.reserve(gradients.size());
  for (size_t f = 0; f < gradients.size(); ++f) {
    std::vector<float> shifted(shift + 1, -7.0f);
    shifted.insert(shifted.begin() + static_cast<int64_t>(shift), gradients[f].begin(), gradients[f].end());
    gradients_.emplace_back(context_, shifted.data(), shifted.size() * sizeof(float));
    features_[f].gradients = features_[f].n == 0 ? nullptr : gradients_.back().as<float>() + shift;
  }
}

void DeviceSums::InstallZeros(const std::vector<std::pair<uint32_t, int64_t>>& wanted, bool admit) {
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

int DeviceSums::TrySum(float scale, const uint8_t* active, Result* result) {
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

DeviceSums::Result DeviceSums::Sum(float scale, const uint8_t* active) {
  Result result;
  EXPECT_EQ(TrySum(scale, active, &result), HET_DEV_OK) << HetDevError();
  return result;
}

DeviceSums::Result DeviceSums::SumAll(float scale, const uint8_t* active, bool admit) {
  Result result = Sum(scale, active);
  if (!result.wanted.empty()) {
    InstallZeros(result.wanted, admit);
    result = Sum(scale, active);
    EXPECT_TRUE(result.wanted.empty());
  }
  return result;
}

std::vector<Update> DeviceSums::Tick() {
  HetDevExport due;
  EXPECT_EQ(HetDevTick(context_, call_, &batch_, nullptr, &due), HET_DEV_OK) << HetDevError();
  return Copied(due);
}

DeviceSums::Sums DeviceSums::Expected(const std::vector<Feature>& features,
                                      const std::vector<std::vector<float>>& gradients, float scale,
                                      const std::vector<bool>& active) const {
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

void DeviceSums::ExpectSums(const Sums& sums) {
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

std::vector<float> DeviceSums::RandomGradients(const Feature& feature) {
  std::vector<float> gradients(feature.ids.size() * configs_[feature.use].dim);
  for (float& x : gradients) x = static_cast<float>(random_.Unit() * 2 - 1);
  return gradients;
}

}  // namespace het::testing
