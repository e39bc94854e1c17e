// Engine: an update in two halves, with an exchange between workers in the middle (gradient_sums.h).
#include <atomic>
#include <new>

#include "het_tf/core/client/client.h"
#include "het_tf/core/engine/engine.h"
#include "het_tf/core/plan/gradient_sums.h"
#include "het_tf/core/plan/row_ops.h"
#include "het_tf/core/plan/step.h"
#include "het_tf/core/row/any_nonzero.h"

namespace het {
namespace {

// The sums of one group, and the keys of its inactive features.
void Collect(const BatchCall& call, Step* step, const BatchPlan::Group& group, GradientSums::OfTable* table) {
  const BatchPlan& plan = step->plan;
  const size_t dim = call.tables[group.table]->schema->dim();
  const Key* keys = plan.keys(group);
  const uint64_t* hashes = plan.hashes(group);
  const uint8_t* touched = step->touched(group);
  const float* sums = step->values_of(group, dim);
  for (size_t u = 0; u < group.uniques; ++u) {
    if (!touched[u]) continue;
    table->keys.push_back(keys[u]);
    table->hashes.push_back(hashes[u]);
    table->sums.insert(table->sums.end(), sums + u * dim, sums + (u + 1) * dim);
  }
  // Entries stand in the order of features, so a key's last feature tells whether this one is new.
  Vector<uint32_t> last;
  const BatchPlan::Entry* entries = plan.entry(group);
  const uint32_t* inverse = plan.inverse(group);
  for (size_t e = 0; e < group.entries; ++e) {
    const uint32_t feature = entries[e].feature, u = inverse[e];
    if (step->active[feature] || touched[u]) continue;
    if (last.empty()) last.assign(group.uniques, 0xffffffffu);
    if (last[u] == feature) continue;
    last[u] = feature;
    table->idle_keys.push_back(keys[u]);
    table->idle_hashes.push_back(hashes[u]);
    table->idle_features.push_back(feature);
  }
}

}  // namespace

Status Engine::SumGradients(const BatchCall& call, const ApplyArgs& args, GradientSums* sums) {
  std::unique_ptr<Step> step;
  HET_RETURN_IF_ERROR(Consume(args.token, &step));
  std::lock_guard<std::mutex> apply_lock(apply_mutex_);
  Status status;
  try {
    if (step == nullptr) {
      step = NewStep();
      step->Build(call, transport_->id(0), pool_.get());
    }
    step->PrepareValues(call);
    step->PrepareTouched(call);
    for (size_t f = 0; f < call.features.size(); ++f) {
      const size_t dim = call.tables[call.features[f].table]->schema->dim();
      step->active[f] = AnyNonZero(args.gradients[f], call.features[f].ids.size() * dim);
    }
    std::atomic<const BatchPlan::Group*> non_finite{nullptr};
    step->ForPartitions(pool_.get(), [&](uint32_t p) {
      for (const BatchPlan::Group& group : step->GroupsOf(p)) {
        if (group.entries == 0) continue;
        const size_t dim = call.tables[group.table]->schema->dim();
        SumGroup(step->plan, group, args.gradients, step->active.data(), dim, step->values_of(group, dim),
                 step->touched(group));
        if (!ScaleAndCheckFinite(step->values_of(group, dim), group.uniques * dim, args.scale)) {
          non_finite.store(&group);
        }
      }
    });
    const BatchPlan::Group* bad = non_finite.load();
    sums->skip = bad != nullptr && args.non_finite == NonFinite::kSkip;
    if (bad != nullptr && !sums->skip) status = NonFiniteGradient(call, step.get(), *bad);
    sums->active.assign(step->active.begin(), step->active.end());
    sums->tables.assign(call.tables.size(), GradientSums::OfTable());
    for (size_t t = 0; t < call.tables.size(); ++t) sums->tables[t].dim = call.tables[t]->schema->dim();
    if (status.ok() && !sums->skip) {
      for (const BatchPlan::Group& group : step->plan.groups()) {
        if (group.entries != 0) Collect(call, step.get(), group, &sums->tables[group.table]);
      }
    }
  } catch (const std::bad_alloc&) {
    status =
        Status(Code::kResourceExhausted, "out of memory while gradients were summed; no row was changed");
  }
  Release(args.token);
  Recycle(std::move(step));
  return status;
}

Status Engine::ApplySums(Span<const TablePtr> tables, const MergedSums& sums,
                         Span<const float> learning_rates) {
  Vector<FeatureIds> features;
  Vector<const float*> gradients;
  Vector<uint8_t> active;
  for (uint32_t t = 0; t < tables.size(); ++t) {
    const MergedSums::OfTable& table = sums.tables[t];
    features.push_back({t, Span<const int64_t>(table.keys.data(), table.keys.size()), {}});
    gradients.push_back(table.sums.data());
    active.push_back(table.active);
  }
  const BatchCall call{tables, Span<const FeatureIds>(features.data(), features.size())};
  ApplyArgs args;
  HET_RETURN_IF_ERROR(Lookup(call, {}, &args.token));
  args.gradients = Span<const float* const>(gradients.data(), gradients.size());
  args.learning_rates = learning_rates;
  args.active = Span<const uint8_t>(active.data(), active.size());
  bool skipped = false;
  return Apply(call, args, &skipped);
}

}  // namespace het
