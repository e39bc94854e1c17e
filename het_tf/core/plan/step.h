// The state of one step between its lookup and its gradient. Recycled, since its buffers are megabytes.
#pragma once

#include <cstdint>

#include "het_tf/core/plan/batch_call.h"

namespace het {

struct Step {
  BatchPlan plan;
  // For a planned lookup: the next planned lookup that uses each unique key; 0: none.
  Vector<uint32_t> next_use;
  Vector<uint8_t> active;  // for each feature: whether its gradient counts

  // Sorts the ids; plan.Unique then finds the unique keys of one group.
  void Scatter(const BatchCall& call, const PartitionId& store, ThreadPool* pool);
  // Scatter, and the unique keys of all groups.
  void Build(const BatchCall& call, const PartitionId& store, ThreadPool* pool);

  // Room for a pointer to the row of each unique key, in a lookup. The rows may be in tables and caches,
  // which must not change meanwhile.
  void PrepareRows() { rows_.Resize(plan.entries()); }
  const float** rows(const BatchPlan::Group& group) { return rows_.data() + group.first; }

  // Room for one value of every unique key: initial rows in a lookup, sums for a gradient.
  void PrepareValues(const BatchCall& call);
  float* values(const BatchPlan::Group& group) { return values_.data() + value_begin_[plan.NumberOf(group)]; }
  // One byte for each unique key: 0 untouched, 1 touched, 3 touched and its row was made by this step.
  uint8_t* touched(const BatchPlan::Group& group) { return touched_.data() + group.first; }

  // Sets `active` (ApplyArgs::active). Returns false if no feature is active.
  bool FindActive(const BatchCall& call, const ApplyArgs& args);
  // values = the sums of active features' gradients; touched = whether there was one. squares[t], unless
  // empty: the squared norm of table t's sums. InvalidArgument names a key whose sum is not finite.
  Status SumGradients(const BatchCall& call, const ApplyArgs& args, ThreadPool* pool,
                      Span<double> squares = {});
  // A row for the gradient of one key, of each group: ticks of groups run concurrently. Set by SumGradients.
  float* scratch(const BatchPlan::Group& group) {
    return scratch_.data() + plan.NumberOf(group) * scratch_dim_;
  }

  // Returns the groups of partition p.
  Span<const BatchPlan::Group> GroupsOf(uint32_t p) const {
    return plan.groups().subspan(static_cast<size_t>(p) * plan.tables(), plan.tables());
  }
  // Calls task(p) for every partition, concurrently if the step is large enough. If a task throws
  // std::bad_alloc it is rethrown here, after running tasks have ended.
  template <typename Task>
  void ForPartitions(ThreadPool* pool, Task task) const {
    ForTasks(pool, plan.groups().size() / plan.tables(),
             [&task](size_t p) { task(static_cast<uint32_t>(p)); });
  }
  template <typename Task>
  void ForTasks(ThreadPool* pool, size_t tasks, Task task) const {
    ForEach(plan.entries() < kParallelEntries ? nullptr : pool, tasks, task);
  }

 private:
  static constexpr size_t kParallelEntries = 16384;

  Buffer<const float*> rows_;
  Buffer<float> values_;
  Buffer<uint8_t> touched_;
  Buffer<float> scratch_;
  size_t scratch_dim_ = 0;
  Vector<size_t> value_begin_;  // for each group
};

// InvalidArgument: more than BatchPlan::kMaxIds ids.
Status CheckSize(const BatchCall& call);
Status TableIsGone(const Table& table);
Status NonFiniteGradient(const Table& table, Key key);

}  // namespace het
