// The steps of an engine: Lookup reads the rows of a batch, Apply trains them with its gradients.
//
//   Lookup   sorts a batch's ids (plan/batch_plan.h), asks each backend for its rows
//            └─ training: StepStore keeps the plan; its number is the token
//   Apply    takes the plan, sums gradients per unique key (plan/step.h), lets each backend tick
//
// StepStore lists the newest eight steps: an older one loses its plan but still works. A cache on the host
// knows its rows in use from the numbers of lookups (cache/lookup_numbers.h). A device plans its own steps:
// one call must not mix its tables with those in host memory.
//
// Example: table 0 has dim 2; feature 0 has ids [7, 9, 7], feature 1 has ids [9, -1] and padding_id -1.
//   Lookup  out[0] = [row 7, row 9, row 7]   float[3][2]
//           out[1] = [row 9, 0]              float[2][2]
//           *token = 1
//   Apply   gradients[0] float[3][2], gradients[1] float[2][2], token 1, learning_rates[0] = 0.1
//           row 7 <- optimizer(row 7, gradients[0][0] + gradients[0][2])              one tick
//           row 9 <- optimizer(row 9, gradients[0][1] + gradients[1][0])              one tick
//
// Planned steps. Plan sorts a batch's ids before its lookup, on the pipeline's thread, and leaves them with
// ComingSteps. The lookup takes the plan; with a remote store it has begun by then, during the previous step.
// If Plan knows all workers' lookups, rows travel on demand: OnDemand determines the rows to send.
//
// Concurrency. Thread-safe. Two locks: of updates, which lets one Apply run at a time; and of lookups, which
// run concurrently while the pool of threads stays.
//
// Out of memory. Lookup, Apply and SumGradients throw std::bad_alloc, with rows unchanged; the kernels
// (kernels/tf/tf_util.h) and the C functions (base/answer.h) turn it into ResourceExhausted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>

#include "het_tf/core/engine/engine_parts.h"

namespace het {

struct GradientSums;
struct MergedSums;

class Steps {
 public:
  // `threads` includes the caller.
  Steps(EngineParts* parts, size_t threads) : parts_(parts), pool_(std::make_unique<ThreadPool>(threads)) {}
  void SetThreads(size_t threads);

  // Reads the rows of a batch. Args:
  //   call   tables, and for each feature its table, ids and padding_id; at most BatchPlan::kMaxIds
  //          ids. If call.memory is on the device, so must be ids, `out` and the tables' caches.
  //   out    out[f] receives features[f].ids.size() rows of the feature's dim, zeros for padding.
  //          Empty: nothing is copied. On the device, work put on the stream afterwards sees the rows.
  //   token  not null: the call belongs to a training step. *token becomes the step's number, and its
  //          rows are kept for the Apply that brings it back. Null: nothing is remembered, and neither
  //          caches nor counters of use change.
  // FailedPrecondition: a table was dropped, or is being loaded. Others are the store's.
  Status Lookup(const BatchCall& call, Span<float* const> out, uint64_t* token);

  // Ticks every key of a feature whose gradient counts. Args:
  //   call     as for the lookup. After Apply returns, only earlier work on the stream uses it.
  //   args     token (consumed, even if the call fails), gradients, learning rates, scale
  //            (batch_call.h).
  //   skipped  set if a summed gradient is not finite and args.non_finite is kSkip.
  // FailedPrecondition: the token was used before, or is invalid. InvalidArgument: a summed gradient is not
  // finite (kRaise). After an error no row has changed, except after errors of pushing: the message says so.
  Status Apply(const BatchCall& call, const ApplyArgs& args, bool* skipped);

  // Apply in two halves, for workers that sum their gradients before one of them ticks (gradient_sums.h). The
  // first half consumes the token and changes no row; errors as for Apply. It ignores learning rates.
  Status SumGradients(const BatchCall& call, const ApplyArgs& args, uint32_t workers, GradientSums* sums);
  // The second half reads the rows and ticks each key once, unless the step is skipped. `layer`: as in the
  // lookup's call. Errors as for Lookup and Apply.
  Status ApplySums(Span<const TablePtr> tables, uint64_t layer, const MergedSums& sums,
                   Span<const float> learning_rates);

  // Plans a training lookup of these ids, which need not be sorted again. If tables are at a remote store,
  // its rows are requested when the previous lookup has ended, unless a pull bound is 0 (coming_steps.h).
  // Never waits; errors are reported by the lookup. `window`: number of batches of the layer that may be
  // planned, at least 1. Unimplemented: a table is cached on a device. `all`: all workers' lookups of this
  // step; then, if there are several, rows of the layer travel on demand (on_demand.h).
  Status Plan(const BatchCall& call, size_t window, const GlobalStep::Ids* all = nullptr);
  // The pass of a stream whose rows travel on demand has no step behind the one at this place.
  void EndPass(uint64_t layer, uint64_t place) { parts_->on_demand.EndPass(layer, place); }

  // The lock of updates, if the store is in this process: row numbers must hold between phases of an Apply. A
  // remote store has no row numbers here, so nothing is locked and steps go on.
  std::unique_lock<std::mutex> LockRowNumbers();
  // Runs fn while no step and no change of a table runs.
  void Pause(const std::function<void()>& fn);

 private:
  // `step`: with the call and, except on a device, an empty plan. `token`: as in Lookup.
  Status Read(StepCall* step, StepStore::StepPtr plan, Span<float* const> out, uint64_t* token);
  Status Number(StepCall* step);
  void TellUnplanned(const BatchCall& call);
  void TellSmallCaches(const BatchCall& call, const BatchPlan& plan);
  std::shared_ptr<const GlobalStep> GlobalOf(const BatchCall& call, const GlobalStep::Ids& all);
  Status Prepare(StepCall* step);
  // Returns *plan, which it builds if absent.
  Step* BuildPlan(const BatchCall& call, StepStore::StepPtr* plan);

  EngineParts* const parts_;
  std::mutex global_mutex_;       // guards the next member; a leaf lock
  BatchPlan global_scratch_;      // sorts the ids of all workers
  std::mutex apply_mutex_;        // of updates
  std::shared_mutex pool_mutex_;  // of lookups: shared while one uses the pool; exclusive to replace the pool
  std::unique_ptr<ThreadPool> pool_;
};

}  // namespace het
