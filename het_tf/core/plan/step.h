// What is kept of one step between its lookup and its gradient. Steps are recycled: their buffers
// are megabytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <new>

#include "het_tf/core/plan/batch_call.h"

namespace het {

struct Step {
  BatchPlan plan;
  // Of a planned lookup, for each unique key of the plan: the planned lookup that uses it next, 0: none.
  Vector<uint32_t> next_use;
  Vector<uint8_t> active;  // for each feature: does its gradient count?

  // Sorts the ids; the unique keys are found group by group, by plan.Unique.
  void Scatter(const BatchCall& call, const PartitionId& store, ThreadPool* pool);
  // The unique keys too.
  void Build(const BatchCall& call, const PartitionId& store, ThreadPool* pool);

  // Where the row of each unique key of a group is: room for a lookup, which may point into tables
  // and caches as long as they stay as they are.
  void PrepareRows() { rows_.Resize(plan.entries()); }
  const float** rows(const BatchPlan::Group& group) { return rows_.data() + group.first; }

  // Room for one value of every unique key: for a lookup initial rows, which are nowhere else; for
  // a gradient the sums.
  void PrepareValues(const BatchCall& call);
  float* values(const BatchPlan::Group& group) { return values_.data() + value_begin_[plan.NumberOf(group)]; }
  // One byte for each unique key: 0 untouched, 1 touched, 3 touched and its row was made by this
  // step.
  uint8_t* touched(const BatchPlan::Group& group) { return touched_.data() + group.first; }

  // Which features have a gradient that counts (ApplyArgs::active). False: none has.
  bool FindActive(const BatchCall& call, const ApplyArgs& args);
  // values = the sums of the active features' gradients, scaled; touched = whether there was one.
  // InvalidArgument names a key whose sum is not finite; with NonFinite::kSkip *skipped says so
  // instead.
  Status SumGradients(const BatchCall& call, const ApplyArgs& args, ThreadPool* pool, bool* skipped);

  // The groups of partition p.
  Span<const BatchPlan::Group> GroupsOf(uint32_t p) const {
    return plan.groups().subspan(static_cast<size_t>(p) * plan.tables(), plan.tables());
  }
  // task(p) for every partition; side by side where the step is big enough to pay for it. A task
  // may throw std::bad_alloc: it is thrown here then, when the other tasks are done or have not
  // begun.
  template <typename Task>
  void ForPartitions(ThreadPool* pool, Task task) const {
    ForTasks(pool, plan.groups().size() / plan.tables(),
             [&task](size_t p) { task(static_cast<uint32_t>(p)); });
  }
  template <typename Task>
  void ForTasks(ThreadPool* pool, size_t tasks, Task task) const {
    if (plan.entries() < kParallelEntries || pool->threads() <= 1) {
      for (size_t i = 0; i < tasks; ++i) task(i);
      return;
    }
    std::atomic<bool> out_of_memory{false};
    pool->For(tasks, [&](size_t i) {
      try {
        task(i);
      } catch (const std::bad_alloc&) {
        out_of_memory.store(true);
      }
    });
    if (out_of_memory.load()) throw std::bad_alloc();
  }

 private:
  static constexpr size_t kParallelEntries = 16384;

  Buffer<const float*> rows_;
  Buffer<float> values_;
  Buffer<uint8_t> touched_;
  Vector<size_t> value_begin_;  // of each group
};

Status TableIsGone(const Table& table);
Status NonFiniteGradient(const Table& table, Key key);

}  // namespace het
