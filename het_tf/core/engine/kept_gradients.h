// Gradients between `tape.gradient`, which takes them, and the optimizer's apply, which updates rows by them.
//
//   Keep    a lookup's gradient, summed per unique key ─► a slot of its variable, and a ticket
//   Choose  tickets, as the user's code has changed them ─► which gradients, each with a factor
//
// A variable stands for the tables of a layer (python/layer/variable.py); its value is a matrix
// [kSlots, 2] of tickets, all 0. The ticket of a kept gradient is its norm in a fixed direction, at the row
// of its slot. Gradients are linear, so what a user does to a ticket (adds, scales, clips by norm, drops) is
// what he does to the rows' gradients:
//
//   factor = ticket that comes back / ticket that was given
//
// A ticket that has left its direction was changed in another way (a sign, a clip by value), which no factor
// describes. Every worker has other directions, and so has a slot each time that it is used again: tickets
// that were averaged over workers, or whose gradient was dropped, are known by it.
//
// Memory. The newest gradient of a variable keeps its step, with the plan. One that was applied may be
// applied again until its layer's next training lookup, which then gets its plan: the CPU's caches have it.
// Others are only keys and sums. Of each variable the newest kSlots gradients are kept; Table::dropped counts
// those that leave without having been applied.
//
// Steps of many calls. Of those since the variable's last update up to kTurns share a slot, so kTurns *
// kSlots are kept. What comes back in a slot must be the sum of some that follow each other, with one factor:
// the gradients of an accumulation, of an unrolled loop.
//
// Thread-safe; a leaf lock. What a kept gradient has is protected by the engine's lock of updates.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "het_tf/core/base/span.h"
#include "het_tf/core/base/status.h"
#include "het_tf/core/engine/step_store.h"
#include "het_tf/core/plan/batch_call.h"
#include "het_tf/core/plan/gradient_sums.h"

namespace het {

// The gradients of a call for tables on a device, which sums them when they are applied.
struct DeviceGradient {
  std::vector<FeatureIds> features;
  std::vector<const float*> gradients;
  float norm = 0;                // of all gradients, equal ids not summed
  std::shared_ptr<void> memory;  // owns ids and gradients
  void* stream = nullptr;
  bool on_host = false;  // gradients are in host memory
};

struct KeptGradient {
  uint64_t number = 0;  // of the training lookup
  uint64_t layer = 0;   // BatchCall::layer
  std::vector<TablePtr> tables;
  std::vector<uint64_t> variables;  // for each table
  Vector<uint32_t> table_of_feature;
  Vector<uint8_t> active;   // for each feature: its gradient is not all zero
  StepStore::StepPtr step;  // its sums; null: they are in `sums`, or on the device
  GradientSums sums;        // without owners
  std::shared_ptr<DeviceGradient> on_device;
  Status bad;  // not OK: a sum is not finite
};

class KeptGradients {
 public:
  static constexpr uint32_t kSlots = 64;
  static constexpr uint32_t kTurns = 4;
  using Ticket = std::array<float, 2>;
  using Ptr = std::shared_ptr<KeptGradient>;

  struct Given {
    uint32_t slot = 0;
    Ticket ticket = {};
    std::vector<uint64_t> left;  // numbers of lookups whose steps are not needed any more
  };
  // Keeps a gradient of this norm. `worker`: this one's rank. Throws std::bad_alloc.
  Given Keep(uint64_t variable, Ptr gradient, double norm, uint32_t worker);

  struct Chosen {
    Ptr gradient;
    float factor = 1;
    uint32_t slot = 0;
  };
  // Args:
  //   what     names the variable's tables, for messages
  //   tickets  [kSlots, 2]
  // FailedPrecondition: a gradient was dropped, or never kept here, or tickets are not finite for another
  // reason than their gradients. InvalidArgument: a gradient is not finite, or tickets were changed in a way
  // that is not linear.
  Result<std::vector<Chosen>> Choose(uint64_t variable, const std::string& what, Span<const float> tickets);
  // Call when a table is dropped: its variables' gradients are of no use.
  void Forget(uint64_t table);
  // Call when a training lookup of the layer begins (BatchCall::layer).
  void DropApplied(uint64_t layer);
  // Rows were updated by these.
  void SetApplied(uint64_t variable, const std::vector<Chosen>& chosen);

 private:
  struct Kept {
    Ptr gradient;
    Ticket ticket = {};
    uint64_t number = 0;  // of the variable's gradients; kSlots of them are a turn
    bool applied = false;
  };
  struct Slot {
    std::vector<Kept> kept;  // the newest is the last
    uint64_t worker = 0;     // with the turn: of a direction

    uint64_t turn() const { return kept.back().number / kSlots; }
    // Whether `came` is a multiple of some that follow each other; appends them to *chosen, if not null.
    bool Match(uint32_t slot, const Ticket& came, std::vector<Chosen>* chosen) const;
  };
  struct Variable {
    std::array<Slot, kSlots> slots;
    uint64_t kept = 0;                  // so far
    uint64_t step = 0;                  // number of the first since the last update
    std::vector<uint64_t> tables = {};  // of its gradients
    bool any_applied = false;           // one may be
  };

  static void Drop(uint64_t variable, const Kept& one);

  std::mutex mutex_;  // guards the next member
  std::map<uint64_t, Variable> variables_;
};

}  // namespace het
