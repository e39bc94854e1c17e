// Training steps between their lookup and their gradient, by number: the token that the lookup returns and
// the gradient brings back. Caches also number their lookups by it (cache/lookup_numbers.h).
//
//   Reserve ─► (lookup) ─► Remember ─► kept: the plan ─► Consume ─► (apply)
//                                        └─ no longer among the newest kKept ─► old: only the number
//
// An old step still gets its gradient: its plan is built again, and its rows may have to be fetched again.
// The oldest old numbers are dropped at last.
//
// Concurrency: thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "het_tf/core/base/status.h"
#include "het_tf/core/plan/step.h"

namespace het {

class StepStore {
 public:
  static constexpr size_t kKept = 8;  // steps with their plan
  // A step is old after this many lookups, even if few steps are kept: one that is never differentiated must
  // not hold its plan or, on a device, the rows of all later steps.
  static constexpr uint64_t kBehind = 64;
  static constexpr size_t kOld = 65536;  // old steps that may still be used
  static constexpr size_t kSpare = 4;    // plans kept for reuse: their buffers are megabytes

  struct Recycle {
    StepStore* store = nullptr;
    void operator()(Step* step) const { store->TakeBack(step); }
  };
  // Its destructor returns the step to the store.
  using StepPtr = std::unique_ptr<Step, Recycle>;

  StepStore();
  ~StepStore();

  // Returns an empty plan. Throws std::bad_alloc.
  StepPtr New();
  // Returns the number of a new training lookup.
  uint64_t Reserve();
  // Call when the lookup has succeeded. `step`: its plan; null if there is none, as on a device. Returns the
  // number of the step that is no longer kept, or 0. Throws std::bad_alloc, with nothing remembered.
  uint64_t Remember(uint64_t number, StepPtr step);
  // Takes the plan for a gradient; null if it must be built again. FailedPrecondition: the number was used
  // before, or was never given.
  Result<StepPtr> Consume(uint64_t number);

 private:
  void TakeBack(Step* step) noexcept;

  std::mutex mutex_;  // guards the members below
  uint64_t next_ = 1;
  std::map<uint64_t, std::unique_ptr<Step>> kept_;
  std::set<uint64_t> old_;
  std::vector<std::unique_ptr<Step>> spare_;
};

}  // namespace het
