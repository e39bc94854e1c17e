// Training steps between their lookup and their gradient, by number: the token that the lookup returns and
// the gradient brings back. Caches also number their lookups by it (cache/lookup_numbers.h).
//
//   Reserve ─► (lookup) ─► Remember ─► kept: the plan ─► Take ─► (gradient)
//                                        └─ no longer among the newest kKept ─► dropped
//
// A step without a plan still gets its gradient, and any step a second one: the plan is built again, and rows
// may have to be fetched again.
//
// Concurrency: thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "het_tf/core/base/status.h"
#include "het_tf/core/plan/step.h"

namespace het {

class StepStore {
 public:
  static constexpr size_t kKept = 8;  // steps with their plan
  // A step loses its plan after this many lookups, even if few steps are kept: one that is never
  // differentiated must not hold its plan or, on a device, the rows of all later steps.
  static constexpr uint64_t kBehind = 64;
  static constexpr size_t kSpare = 4;  // plans kept for reuse: their buffers are megabytes

  struct Recycle {
    StepStore* store = nullptr;
    void operator()(Step* step) const { store->TakeBack(step); }
  };
  // Its destructor returns the step to the store.
  using StepPtr = std::unique_ptr<Step, Recycle>;

  StepStore() { spare_.reserve(kSpare); }

  // Returns an empty plan. Throws std::bad_alloc.
  StepPtr New();
  // Returns the number of a new training lookup.
  uint64_t Reserve();
  // Call when the lookup has succeeded. `step`: its plan; null if there is none, as on a device. Returns the
  // number of the step that is no longer kept, or 0. Throws std::bad_alloc, with nothing remembered.
  uint64_t Remember(uint64_t number, StepPtr step);
  // Takes the plan for a gradient; null if it must be built again. FailedPrecondition: the number was never
  // given.
  Result<StepPtr> Take(uint64_t number);

 private:
  void TakeBack(Step* step) noexcept;

  std::mutex mutex_;  // guards the members below
  uint64_t next_ = 1;
  std::map<uint64_t, std::unique_ptr<Step>> kept_;
  std::vector<std::unique_ptr<Step>> spare_;
};

}  // namespace het
