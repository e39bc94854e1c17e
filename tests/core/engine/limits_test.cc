// Limits of tables in the embedded store: they reach partitions without pushes, and tables without further
// training.
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "het_tf/core/engine/engine.h"
#include "het_tf/core/store/local_service.h"
#include "tests/testing/keep_and_apply.h"
#include "tests/testing/table_specs.h"

namespace het {
namespace {

class LimitsTest : public ::testing::TestWithParam<bool> {
 protected:
  void Create(const std::string& name) {
    TableSpec spec = testing::NewSpec(name, 2);
    spec.limits = TableLimits();
    spec.limits->ttl = 100;
    TableOptions options;
    if (GetParam()) options.cache = CacheConfig();
    ASSERT_TRUE(engine_.tables().Create(spec, options).ok());
  }
  void Train(const std::string& name, const std::vector<int64_t>& ids) {
    const TablePtr table = engine_.tables().Find(name).value();
    const FeatureIds feature{0, Span<const int64_t>(ids.data(), ids.size()), {}};
    const BatchCall call{Span<const TablePtr>(&table, 1), Span<const FeatureIds>(&feature, 1)};
    std::vector<float> rows(ids.size() * 2);
    float* const out[] = {rows.data()};
    uint64_t token = 0;
    ASSERT_TRUE(engine_.steps().Lookup(call, Span<float* const>(out, 1), &token).ok());
    const std::vector<float> ones(rows.size(), 1);
    ASSERT_TRUE(testing::KeepAndApply(&engine_.steps(), call, token, ones).ok());
    ASSERT_TRUE(engine_.caches().Flush().ok());
  }

  uint32_t now_ = 1700000000;
  Engine engine_{"aging", 1, [this] { return now_; }};
};

INSTANTIATE_TEST_SUITE_P(Tables, LimitsTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "cached" : "direct"; });

TEST_P(LimitsTest, ReachEveryPartition) {
  Create("old");
  Create("new");
  std::vector<int64_t> ids(300);
  std::iota(ids.begin(), ids.end(), 0);
  Train("old", ids);
  now_ += 100;
  for (uint32_t i = 0; i < LocalService::kDefaultPartitions; ++i) Train("new", {1});
  EXPECT_EQ(engine_.tables().Size("old").value(), 0u);
  EXPECT_EQ(engine_.tables().Size("new").value(), 1u);
}

}  // namespace
}  // namespace het
