// Training steps between their lookup and their gradient. A step is known by its number: the token
// that the lookup answers and the gradient brings back. Caches number their lookups by it
// (cache/lookup_numbers.h).
//
//   Reserve ─► (lookup) ─► Remember ─► kept: the plan ─► Consume ─► (apply)
//                                        └─ not among the newest kKept any more ─► old: the number alone
//
// A step that is old still gets its gradient: its plan is built again, and its rows may have to be
// fetched again. Of old numbers the oldest are forgotten at last.
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
  // Lookups after which a step is old, however few there are: one that is never differentiated keeps
  // neither its plan nor, on a device, the rows of all later steps.
  static constexpr uint64_t kBehind = 64;
  static constexpr size_t kOld = 65536;  // older ones that may still be used
  static constexpr size_t kSpare = 4;    // plans that wait to be used again: their buffers are megabytes

  struct Recycle {
    StepStore* store = nullptr;
    void operator()(Step* step) const { store->TakeBack(step); }
  };
  // Returns to the store when it goes.
  using StepPtr = std::unique_ptr<Step, Recycle>;

  StepStore();
  ~StepStore();

  // An empty plan. Throws std::bad_alloc.
  StepPtr New();
  // The number of a training lookup that begins.
  uint64_t Reserve();
  // Its lookup has succeeded. `step`: its plan; null where there is none, as on a device. Answers
  // the number of the step that is not kept any more, or 0. Throws std::bad_alloc, and remembers
  // nothing then.
  uint64_t Remember(uint64_t number, StepPtr step);
  // Its gradient is here: the plan, or null where that has to be built again. FailedPrecondition:
  // the number was used before, or was never given.
  Result<StepPtr> Consume(uint64_t number);

 private:
  void TakeBack(Step* step) noexcept;

  std::mutex mutex_;  // guards what follows
  uint64_t next_ = 1;
  std::map<uint64_t, std::unique_ptr<Step>> kept_;
  std::set<uint64_t> old_;
  std::vector<std::unique_ptr<Step>> spare_;
};

}  // namespace het
