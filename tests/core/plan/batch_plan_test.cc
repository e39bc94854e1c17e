// A step's plan against its definition: the unique keys, their positions, partitions and order; and copying
// rows from their places into the features of a batch.
#include "het_tf/core/plan/batch_plan.h"

#include <gtest/gtest.h>

#include <set>

#include "het_tf/core/base/hash.h"
#include "het_tf/core/plan/row_ops.h"
#include "het_tf/core/wire/layout.h"
#include "tests/testing/fits_in.h"
#include "tests/testing/random.h"

namespace het::testing {
namespace {

struct Feature {
  uint32_t table;
  std::vector<int64_t> ids;
  std::optional<Key> padding;
};

// The id of table number t, which normally comes from its name.
uint64_t IdOf(uint32_t t) { return Mix64(t + 1); }

void Build(const std::vector<Feature>& features, uint32_t tables, const PartitionId& store, ThreadPool* pool,
           BatchPlan* plan) {
  std::vector<FeatureIds> ids;
  for (const Feature& f : features) {
    ids.push_back({f.table, f.ids, f.padding});
  }
  std::vector<uint64_t> table_ids;
  for (uint32_t t = 0; t < tables; ++t) table_ids.push_back(IdOf(t));
  plan->Build(ids, {table_ids.data(), tables}, store, pool);
}

// Checks all promises of the header.
void CheckPlan(const std::vector<Feature>& features, uint32_t tables, const PartitionId& store,
               BatchPlan* plan) {
  ASSERT_EQ(plan->groups().size(), static_cast<size_t>(tables) * store.count);
  std::set<std::pair<uint32_t, uint32_t>> seen;
  size_t entries = 0;
  for (size_t n = 0; n < plan->groups().size(); ++n) {
    const BatchPlan::Group& g = plan->groups()[n];
    ASSERT_EQ(g.partition, n / tables);
    ASSERT_EQ(g.table, n % tables);
    ASSERT_LE(g.uniques, g.entries);
    std::set<Key> distinct;
    for (size_t u = 0; u < g.uniques; ++u) {
      const Key key = plan->keys(g)[u];
      ASSERT_TRUE(distinct.insert(key).second) << "a key twice";
      ASSERT_EQ(plan->hashes(g)[u], HashKey(key, store.hash_seed));
      ASSERT_EQ(Layout(store).Of(IdOf(g.table), plan->hashes(g)[u]), g.partition);
    }
    std::set<uint32_t> used;
    std::pair<uint32_t, uint32_t> before{0, 0};
    for (size_t e = 0; e < g.entries; ++e) {
      const BatchPlan::Entry& entry = plan->entry(g)[e];
      ASSERT_LT(entry.feature, features.size());
      const Feature& f = features[entry.feature];
      ASSERT_EQ(f.table, g.table);
      ASSERT_LT(entry.index, f.ids.size());
      ASSERT_LT(plan->inverse(g)[e], g.uniques);
      ASSERT_EQ(plan->keys(g)[plan->inverse(g)[e]], f.ids[entry.index]);
      used.insert(plan->inverse(g)[e]);
      const std::pair<uint32_t, uint32_t> at{entry.feature, entry.index};
      ASSERT_TRUE(e == 0 || before < at) << "entries are in the order of the step";
      before = at;
      ASSERT_TRUE(seen.insert(at).second);
    }
    ASSERT_EQ(used.size(), g.uniques);
    entries += g.entries;
  }
  EXPECT_EQ(entries, plan->entries());
  for (uint32_t f = 0; f < features.size(); ++f) {
    for (uint32_t i = 0; i < features[f].ids.size(); ++i) {
      const bool padding = features[f].padding.has_value() && features[f].ids[i] == *features[f].padding;
      ASSERT_EQ(seen.count({f, i}), padding ? 0u : 1u);
    }
  }
}

TEST(BatchPlan, RandomSteps) {
  BatchPlan plan;  // recycled, as between steps
  for (uint64_t seed = 1; seed <= Scaled(300); ++seed) {
    SCOPED_TRACE(seed);
    Random r(seed);
    ThreadPool pool(1 + r.Below(3));
    const auto tables = static_cast<uint32_t>(1 + r.Below(4));
    const PartitionId store{0, r.Pick<uint32_t>({1, 2, 7, 24, 64}), r.Next()};
    std::vector<Feature> features(r.Below(6));
    for (Feature& f : features) {
      f.table = static_cast<uint32_t>(r.Below(tables));
      const int64_t range = r.Pick<int64_t>({1, 10, 1000, int64_t{1} << 60});
      for (uint64_t n = r.Chance(0.1) ? 20000 : r.Below(300); n > 0; --n)
        f.ids.push_back(r.Between(-range, range));
      if (r.Chance(0.3)) f.padding = r.Between(-1, 1);
      if (r.Chance(0.2)) f.ids.insert(f.ids.end(), {INT64_MIN, INT64_MAX, INT64_MIN, (int64_t{1} << 53) + 1});
    }
    Build(features, tables, store, &pool, &plan);
    CheckPlan(features, tables, store, &plan);
    if (HasFatalFailure()) return;
  }
}

TEST(BatchPlan, OutOfMemoryLeavesItUsable) {
  ThreadPool pool(1);
  Random r(6);
  std::vector<Feature> features(1);
  features[0].table = 0;
  for (int i = 0; i < 2000; ++i) features[0].ids.push_back(r.Between(0, 500));
  for (size_t room = 0; room < 200000; room += 1000) {
    BatchPlan plan;
    if (!FitsIn(room, [&] { Build(features, 1, {0, 4, 1}, &pool, &plan); })) {
      EXPECT_EQ(plan.entries(), 0u) << room;
    }
    Build(features, 1, {0, 4, 1}, &pool, &plan);
    CheckPlan(features, 1, {0, 4, 1}, &plan);
    if (HasFatalFailure()) return;
  }
}

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
