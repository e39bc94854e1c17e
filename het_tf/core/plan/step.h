// What the engine keeps of one step between its lookup and its gradient, and the work on one group of a
// direct table. Steps are recycled: their buffers are megabytes.
#ifndef HET_TF_CORE_PLAN_STEP_H_
#define HET_TF_CORE_PLAN_STEP_H_

#include <cstdint>

#include "het_tf/core/plan/batch_call.h"
#include "het_tf/core/store/shard.h"

namespace het {

struct Step {
  BatchPlan plan;
  bool any_cached = false;
  Vector<uint8_t> active;  // for each feature: does its gradient count?

  // Sorts the ids; the unique keys are found partition by partition, by plan.Unique.
  void Scatter(const BatchCall& call, const PartitionId& store, ThreadPool* pool);
  // The unique keys too.
  void Build(const BatchCall& call, const PartitionId& store, ThreadPool* pool);
  // Room for one value of every unique key: at first the rows that were looked up, later the sums of their
  // gradients.
  void PrepareValues(const BatchCall& call);

  void PrepareTouched(const BatchCall& call);

  float* values(uint32_t table) { return values_.data() + table_begin_[table]; }
  float* values_of(const BatchPlan::Group& group, size_t dim) {
    return values(group.table) + plan.table_first(group) * dim;
  }
  // One byte for each unique key: 0 untouched, 1 touched, 3 touched and its row was made by this step.
  uint8_t* touched(const BatchPlan::Group& group) { return touched_.data() + group.first; }

  // The groups of partition p.
  Span<const BatchPlan::Group> GroupsOf(uint32_t p) const {
    return plan.groups().subspan(static_cast<size_t>(p) * plan.tables(), plan.tables());
  }
  // task(p) for every partition; side by side where the step is big enough to pay for it.
  template <typename Task>
  void ForPartitions(ThreadPool* pool, Task task) const {
    ForTasks(pool, plan.groups().size() / plan.tables(),
             [&task](size_t p) { task(static_cast<uint32_t>(p)); });
  }
  template <typename Task>
  void ForTasks(ThreadPool* pool, size_t tasks, Task task) const {
    if (plan.entries() >= kParallelEntries && pool->threads() > 1) {
      pool->For(tasks, task);
    } else {
      for (size_t i = 0; i < tasks; ++i) task(i);
    }
  }

 private:
  static constexpr size_t kParallelEntries = 16384;

  Buffer<float> values_;
  Buffer<uint8_t> touched_;
  Vector<size_t> table_begin_;  // of its values
};

// Copies the rows of a group's unique keys to `values`. Fills plan.rows(group).
void LookupGroup(const Shard& shard, BatchPlan& plan, const BatchPlan::Group& group, float* values);

// out[f] = the rows of feature f, from the values of its table's unique keys.
void GatherFeatures(const BatchCall& call, Step* step, ThreadPool* pool, Span<float* const> out);

// Makes sure that every touched key has a row and that plan.rows(group) names it. False: out of memory; rows
// made so far are marked in `touched`.
bool MakeRows(Shard* shard, BatchPlan& plan, const BatchPlan::Group& group, uint8_t* touched);

// Takes back what MakeRows made.
void DropNewRows(Shard* shard, BatchPlan& plan, const BatchPlan::Group& group, uint8_t* touched);

// One tick, at time `now`, for every touched key. Uses the sums up.
void TickGroup(Shard* shard, BatchPlan* plan, const BatchPlan::Group& group, float learning_rate, float* sums,
               const uint8_t* touched, uint32_t now);

Status TableIsGone(const Table& table);

Status NonFiniteGradient(const Table& table, Key key);
// Names the first key of the group whose sum is not finite.
Status NonFiniteGradient(const BatchCall& call, Step* step, const BatchPlan::Group& group);

}  // namespace het

#endif  // HET_TF_CORE_PLAN_STEP_H_
