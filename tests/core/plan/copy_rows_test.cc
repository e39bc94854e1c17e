// Copying rows from their places into the features of a batch.
#include <gtest/gtest.h>

#include <vector>

#include "het_tf/core/plan/row_ops.h"
#include "tests/testing/random.h"

namespace het::testing {
namespace {

// Row of key k: k, k + 0.5, k + 1, ...
float Element(Key key, size_t d) { return static_cast<float>(key) + 0.5f * static_cast<float>(d); }

TEST(CopyToFeatures, EveryPositionGetsItsRowAndPaddingZeros) {
  constexpr Key kPadding = 3;
  for (uint64_t seed = 1; seed <= Scaled(100); ++seed) {
    SCOPED_TRACE(seed);
    Random r(seed);
    const size_t dim = r.Pick<size_t>({1, 3, 8, 16, 32, 64, 70});
    const PartitionId store{0, r.Pick<uint32_t>({1, 5, 16}), r.Next()};
    std::vector<std::vector<int64_t>> ids(r.Below(4));
    std::vector<FeatureIds> features;
    for (auto& of_feature : ids) {
      for (uint64_t n = r.Below(200); n > 0; --n) of_feature.push_back(r.Between(-20, 20));
      features.push_back({0, of_feature, {}});
      if (r.Chance(0.5)) features.back().padding_id = kPadding;
    }
    ThreadPool pool(1);
    BatchPlan plan;
    const uint64_t table = 1;
    plan.Build(features, {&table, 1}, store, &pool);

    std::vector<std::vector<float>> outputs;
    std::vector<float*> out;
    for (const auto& of_feature : ids) outputs.emplace_back(of_feature.size() * dim, -99.0f);
    for (auto& output : outputs) out.push_back(output.data());
    for (size_t f = 0; f < features.size(); ++f) ZeroPadding(features[f], dim, out[f]);
    for (const BatchPlan::Group& group : plan.groups()) {
      std::vector<std::vector<float>> rows(group.uniques);
      std::vector<const float*> places;
      for (size_t u = 0; u < group.uniques; ++u) {
        for (size_t d = 0; d < dim; ++d) rows[u].push_back(Element(plan.keys(group)[u], d));
        places.push_back(rows[u].data());
      }
      CopyToFeatures(plan, group, places.data(), dim, out);
    }
    for (size_t f = 0; f < features.size(); ++f) {
      for (size_t i = 0; i < ids[f].size(); ++i) {
        const bool padding = features[f].padding_id == ids[f][i];
        for (size_t d = 0; d < dim; ++d) {
          ASSERT_EQ(outputs[f][i * dim + d], padding ? 0 : Element(ids[f][i], d));
        }
      }
    }
  }
}

}  // namespace
}  // namespace het::testing
