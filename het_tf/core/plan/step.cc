#include "het_tf/core/plan/step.h"

#include <algorithm>
#include <atomic>
#include <string>

#include "het_tf/core/plan/row_ops.h"
#include "het_tf/core/row/any_nonzero.h"

namespace het {

void Step::Scatter(const BatchCall& call, const PartitionId& store, ThreadPool* pool) {
  const std::vector<uint64_t> tables = call.TableIds();
  plan.Scatter(call.features, {tables.data(), tables.size()}, store, pool);
}

void Step::Build(const BatchCall& call, const PartitionId& store, ThreadPool* pool) {
  const std::vector<uint64_t> tables = call.TableIds();
  plan.Build(call.features, {tables.data(), tables.size()}, store, pool);
}

void Step::PrepareValues(const BatchCall& call) {
  value_begin_.clear();
  size_t floats = 0;
  for (const BatchPlan::Group& group : plan.groups()) {
    value_begin_.push_back(floats);
    floats += group.entries * call.tables[group.table]->schema->dim();
  }
  values_.Resize(floats);
}

bool Step::FindActive(const BatchCall& call, const ApplyArgs& args) {
  active.assign(call.features.size(), 0);
  bool any = false;
  for (size_t f = 0; f < call.features.size(); ++f) {
    const size_t floats = call.features[f].ids.size() * call.tables[call.features[f].table]->schema->dim();
    active[f] = args.active.empty() ? AnyNonZero(args.gradients[f], floats) : args.active[f] != 0;
    any = any || active[f] != 0;
  }
  return any;
}

Status Step::SumGradients(const BatchCall& call, const ApplyArgs& args, ThreadPool* pool,
                          Span<double> squares) {
  PrepareValues(call);
  touched_.Resize(plan.entries());
  scratch_dim_ = 0;
  for (const TablePtr& table : call.tables)
    scratch_dim_ = std::max<size_t>(scratch_dim_, table->schema->dim());
  scratch_.Resize(plan.groups().size() * scratch_dim_);
  Vector<double> of_group(plan.groups().size());
  std::atomic<const BatchPlan::Group*> non_finite{nullptr};
  ForPartitions(pool, [&](uint32_t p) {
    for (const BatchPlan::Group& group : GroupsOf(p)) {
      if (group.entries == 0) continue;
      const size_t dim = call.tables[group.table]->schema->dim();
      float* const sums = values(group);
      SumGroup(plan, group, args.gradients, active.data(), dim, sums, touched(group));
      double& squared = of_group[plan.NumberOf(group)];
      if (!SumSquares(sums, group.uniques * dim, &squared)) non_finite.store(&group);
    }
  });
  // In the order of groups: the sum does not depend on threads.
  for (const BatchPlan::Group& group : plan.groups()) {
    if (!squares.empty()) squares[group.table] += of_group[plan.NumberOf(group)];
  }
  const BatchPlan::Group* const bad = non_finite.load();
  if (bad == nullptr) return Status();
  const Table& table = *call.tables[bad->table];
  const size_t dim = table.schema->dim();
  size_t u = 0;
  double ignored = 0;
  while (u + 1 < bad->uniques && SumSquares(values(*bad) + u * dim, dim, &ignored)) ++u;
  return NonFiniteGradient(table, plan.keys(*bad)[u]);
}

Status CheckSize(const BatchCall& call) {
  size_t ids = 0;
  for (const FeatureIds& feature : call.features) ids += feature.ids.size();
  if (ids <= BatchPlan::kMaxIds) return Status();
  return InvalidArgument("a lookup of " + std::to_string(ids) + " ids; at most " +
                         std::to_string(BatchPlan::kMaxIds) + " fit into one call. Use a smaller batch");
}

Status TableIsGone(const Table& table) {
  return FailedPrecondition("table '" + table.schema->spec().name +
                            "' was dropped; create it again (build the layer), or load a checkpoint");
}

Status NonFiniteGradient(const Table& table, Key key) {
  return InvalidArgument(
      "gradient of table '" + table.schema->spec().name + "' for id " + std::to_string(key) +
      " is NaN or Inf; no row was changed. Lower the learning rate, clip the loss, or check "
      "the inputs");
}

}  // namespace het
