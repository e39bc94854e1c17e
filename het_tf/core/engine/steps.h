// The steps of an engine: Lookup reads the rows of a batch, Keep takes its gradients, ApplyKept trains the
// rows.
//
//   Lookup     sorts a batch's ids (plan/batch_plan.h), asks each backend for its rows
//              └─ training: StepStore keeps the plan; its number is the token
//   Keep       takes the plan, sums gradients per unique key (plan/step.h), keeps them (kept_gradients.h)
//   ApplyKept  of the kept gradients that an optimizer applies: lets each backend tick, once a key
//
// StepStore lists the newest eight steps: an older one loses its plan but still works, and so does one whose
// gradient is taken twice. A cache on the host
// knows its rows in use from the numbers of lookups (cache/lookup_numbers.h). A device plans its own steps.
//
// Example: table 0 has dim 2; feature 0 has ids [7, 9, 7], feature 1 has ids [9, -1] and padding_id -1.
//   Lookup  out[0] = [row 7, row 9, row 7]   float[3][2]
//           out[1] = [row 9, 0]              float[2][2]
//           *token = 1
//   Keep    gradients[0] float[3][2], gradients[1] float[2][2], token 1
//           of row 7: gradients[0][0] + gradients[0][2];  of row 9: gradients[0][1] + gradients[1][0]
//   Apply   factor 1 / 2, learning_rates[0] = 0.1
//           row 7 <- optimizer(row 7, its gradient / 2)      one tick;     row 9 likewise
//
// Planned steps. Lookahead may have sorted a batch's ids before its lookup, and tells what others need.
//
// Concurrency. Thread-safe. Two locks: of updates, which lets one Keep or Apply run at a time; and of
// lookups, which run concurrently while the pool of threads stays.
//
// Out of memory. Lookup, Keep and ApplyKept throw std::bad_alloc, with rows unchanged; the kernels
// (kernels/tf/tf_util.h) and the C functions (base/answer.h) turn it into ResourceExhausted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>

#include "het_tf/core/engine/engine_parts.h"
#include "het_tf/core/engine/kept_gradients.h"

namespace het {

// The update of one variable (kept_gradients.h).
struct KeptCall {
  uint64_t variable = 0;
  Span<const TablePtr> tables;       // for which it stands
  Span<const float> tickets;         // [KeptGradients::kSlots, 2]
  Span<const float> learning_rates;  // for each table
  float scale = 1;                   // of all gradients
};

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
  //          rows are kept until its gradient is applied. Null: nothing is remembered, and neither
  //          caches nor counters of use change.
  // FailedPrecondition: a table was dropped, or is being loaded. Others are the store's.
  Status Lookup(const BatchCall& call, Span<float* const> out, uint64_t* token);

  // Takes the gradient of a lookup; changes no row. Args:
  //   call       as for the lookup
  //   args       token and gradients. A token may be used several times, each for another gradient.
  //   variables  for each table the variable that stands for it
  //   worker     this one's rank
  //   device     of tables on a device: ids and gradients, which are kept as they are; else null
  //   tickets    of each different variable, in order of first use: [KeptGradients::kSlots, 2], zeros and a
  //              ticket. That of a gradient that is not finite is NaN: only applying it is an error.
  // FailedPrecondition: the token is invalid.
  Status Keep(const BatchCall& call, const ApplyArgs& args, Span<const uint64_t> variables, uint32_t worker,
              std::shared_ptr<DeviceGradient> device, float* tickets);
  // Ticks every key of the gradients that the tickets choose once, with the sum of their products with their
  // factors. The keys of a feature whose gradient is all zero are left out. After an error no row has
  // changed, except after errors of pushing: the message says so. Errors as for KeptGradients::Choose;
  // InvalidArgument: the number of rates is not that of tables, or a rate is not finite.
  Status ApplyKept(const KeptCall& call);

  // The norm of the gradient that the tickets choose, equal keys summed: of any positive order, or infinite.
  // NaN for tickets that are not finite. Errors as for KeptGradients::Choose.
  Result<double> NormOfKept(const KeptCall& call, double order);

  // ApplyKept in two halves, for workers that sum their gradients before one of them ticks
  // (gradient_sums.h). The first half changes no row.
  Status SumKept(const KeptCall& call, uint32_t workers, GradientSums* sums, SumsLayout* layout);
  // The second half reads the rows and ticks each key once. `layer`: SumsLayout::layer.
  Status ApplySums(Span<const TablePtr> tables, uint64_t layer, const MergedSums& sums,
                   Span<const float> learning_rates);

  // The lock of updates, if the store is in this process: row numbers must hold between phases of an Apply. A
  // remote store has no row numbers here, so nothing is locked and steps go on.
  std::unique_lock<std::mutex> LockRowNumbers();
  // Runs fn while no step and no change of a table runs.
  void Pause(const std::function<void()>& fn);

 private:
  // `step`: with the call and `plan`. `token`: as in Lookup.
  Status Read(StepCall* step, StepStore::StepPtr plan, Span<float* const> out, uint64_t* token);
  Status Prepare(StepCall* step);
  // Ticks the sums of step->step, or on the device those of args.
  Status Tick(StepCall* step, const ApplyArgs& args);
  Status ApplyOne(const KeptCall& call, const KeptGradients::Chosen& chosen);
  Status ApplyOnDevice(const KeptCall& call, const std::vector<KeptGradients::Chosen>& chosen);
  // Adds the chosen gradients up.
  Status Gather(const KeptCall& call, const std::vector<KeptGradients::Chosen>& chosen, GradientSums* sums,
                SumsLayout* layout);
  Result<std::vector<KeptGradients::Chosen>> Choose(const KeptCall& call);
  // The rows of their lookups may leave.
  void EndLookups(const std::vector<KeptGradients::Chosen>& chosen);
  // For each table of the gradient its number in the call; kNoTable: another variable stands for it.
  // FailedPrecondition: it was dropped.
  static Result<std::vector<uint32_t>> TablesOf(const KeptCall& call, const KeptGradient& gradient);
  // Returns *plan, which it builds if absent.
  Step* BuildPlan(const BatchCall& call, StepStore::StepPtr* plan);

  EngineParts* const parts_;
  std::mutex apply_mutex_;        // of updates
  std::shared_mutex pool_mutex_;  // of lookups: shared while one uses the pool; exclusive to replace the pool
  std::unique_ptr<ThreadPool> pool_;
};

}  // namespace het
