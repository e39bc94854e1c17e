// Batches whose lookups will come, planned while earlier steps compute (Steps::Plan). A lane has those of
// one layer, in the order of its pipeline.
//
//   Add ─► waits ─► BeginNext: its lookup begins early (client/early_reads.h), at most one of a lane
//               └─► Match: the lookup is here. It has the same ids, and takes the plan
//
// A lookup is matched by its ids, with the next batch behind the last match that has them, or else the
// oldest, so nobody has to say which batch is which. Where an iterator was left or restored, or a layer
// changes its ids, batches are passed over: after kPassedOver lookups of later ones, or when the window is
// full of newer ones, they go. A lookup that matches none is an ordinary one.
//
// Caches are told which batch uses a row next (next_uses.h): a lookup has the next uses of its keys, and
// TakeLate those of rows that no batch before used.
//
// Thread-safe. Lock order: the client's, then this one, which is never held while anything waits.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "het_tf/core/engine/next_uses.h"
#include "het_tf/core/engine/step_store.h"
#include "het_tf/core/plan/batch_call.h"
#include "het_tf/core/plan/global_step.h"

namespace het {

struct PlannedStep {
  BatchPlan plan;  // with the unique keys of all groups
  std::vector<TablePtr> tables;
  Vector<Key> ids;            // of all features, one after the other
  Vector<size_t> of_feature;  // how many of them each feature has
  bool cached = false;        // some tables have caches before a remote store
  bool may_begin = false;     // early: so it is, and no pull bound is 0
  uint32_t planned = 0;       // its number among planned batches; 0: nobody asks for next uses
  Vector<uint32_t> next;      // next_uses.h
  uint64_t number = 0;        // of its step; 0: its lookup has not begun
  uint32_t passed_over = 0;   // lookups of batches that came after it
  uint64_t place = 0;         // in its stream: the next batch of a pass has the next one; 0: it has none
  // What the other workers use in its step; null: it is not known.
  std::shared_ptr<const GlobalStep> global;

  void SetIds(Span<const FeatureIds> features);
  bool HasIds(Span<const FeatureIds> features) const;
};

class ComingSteps {
 public:
  // Lookups of later batches that may come before a batch's own: of a layer that an element calls several
  // times, in any order.
  static constexpr uint32_t kPassedOver = 8;
  // Batches of a lane that may wait beside its window.
  static constexpr size_t kBeside = 8;
  // Lookups of a lane without a plan, one after the other, after which the user hears of it.
  static constexpr uint32_t kTellAfter = 32;

  explicit ComingSteps(StepStore* steps) : steps_(steps) {}

  // An empty one. Throws std::bad_alloc.
  std::unique_ptr<PlannedStep> New();
  // `window`: how many batches of the lane the pipeline may be ahead, at least 1. Throws std::bad_alloc.
  void Add(uint64_t lane, size_t window, std::unique_ptr<PlannedStep> step);

  struct Found {
    bool planned = false;
    uint64_t number = 0;        // of the step, where its lookup has begun
    uint32_t planned_step = 0;  // its number among planned batches
    bool tell = false;          // kTellAfter lookups of a lane that has plans had none
    uint64_t place = 0;         // of the batch
    std::shared_ptr<const GlobalStep> global = nullptr;
  };
  // The batch of a training lookup, which waits no more: step->plan and step->next_use become its own.
  Found Match(uint64_t lane, Span<const FeatureIds> features, Step* step);

  // What the others use in the step so many behind the batch of this place; null: it is not known, or not
  // yet.
  std::shared_ptr<const GlobalStep> Behind(uint64_t lane, uint64_t place, uint64_t steps);

  // begin(step) for a batch whose lookup may begin now: the next of its lane, if that has not begun. False:
  // there is none. `begin` is called with the mutex held.
  bool BeginNext(const std::function<void(PlannedStep*)>& begin);
  // Numbers of steps that had begun and will not come.
  std::vector<uint64_t> TakeLeft();
  Vector<NextUses::Late> TakeLate();
  // Whether BeginNext, TakeLeft or TakeLate has something.
  bool any_to_do();
  // Of tables that go: what waits is forgotten.
  void Clear();

 private:
  struct Lane {
    std::deque<std::unique_ptr<PlannedStep>> steps;  // oldest first
    uint32_t unplanned = 0;                          // lookups since the last that was planned
    uint64_t next = 0;                               // the place behind the last match
  };

  static PlannedStep* NextOf(const Lane& lane);
  void RemoveOldest(Lane* lane);
  void Recycle(std::unique_ptr<PlannedStep> step);

  StepStore* const steps_;
  std::mutex mutex_;  // guards what follows
  std::map<uint64_t, Lane> lanes_;
  NextUses uses_;
  std::vector<uint64_t> left_;
  std::vector<std::unique_ptr<PlannedStep>> spare_;  // their buffers are megabytes
};

}  // namespace het
