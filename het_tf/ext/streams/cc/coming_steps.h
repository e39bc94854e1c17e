// Batches of future lookups, planned while earlier steps compute (Window::Plan). A lane has those of one
// layer, in pipeline order.
//
//   Add ─► waits ─► BeginNext: its lookup begins early (client/early_reads.h), at most one in a lane
//               └─► Match: its lookup has come, with the same ids, and takes the plan
//
// A lookup is matched by its ids: with the next batch behind the last match that has them, or else the
// oldest of the newest pass, or else the oldest. So batches need no names. When an iterator is abandoned or
// restored, or a layer changes its ids, batches are passed over: they are dropped after kPassedOver lookups
// of later ones, or when newer ones fill the window. A lookup without a match is an ordinary one.
//
// Caches learn the batch of a row's next use (next_uses.h): a lookup has the next uses of its keys, and
// TakeLate those of rows that no batch before used.
//
// Thread-safe. Lock order: the client's, then this one, which is never held during a wait.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "het_tf/core/engine/step_store.h"
#include "het_tf/core/plan/batch_call.h"
#include "het_tf/ext/streams/cc/global_step.h"
#include "het_tf/ext/streams/cc/next_uses.h"

namespace het {

struct PlannedStep {
  BatchPlan plan;  // including the unique keys of all groups
  std::vector<TablePtr> tables;
  Vector<Key> ids;            // of all features, one after the other
  Vector<size_t> of_feature;  // number of ids of each feature
  bool cached = false;        // some tables have caches of a remote store
  bool may_begin = false;     // early: `cached`, and no pull bound is 0
  uint32_t planned = 0;       // its number among planned batches; 0: next uses are not needed
  Vector<uint32_t> next;      // next_uses.h
  uint64_t number = 0;        // its step's number; 0: its lookup has not begun
  uint32_t passed_over = 0;   // lookups of later batches so far
  uint64_t place = 0;         // its number in the stream, consecutive in a pass; 0: none
  // Keys that the other workers use in its step; null: unknown.
  std::shared_ptr<const GlobalStep> global;

  void SetIds(Span<const FeatureIds> features);
  bool HasIds(Span<const FeatureIds> features) const;
};

class ComingSteps {
 public:
  // Lookups of later batches that may come before a batch's own: for a layer that one element calls several
  // times, in any order.
  static constexpr uint32_t kPassedOver = 8;
  // Batches of a lane that may wait in addition to its window.
  static constexpr size_t kBeside = 8;
  // Consecutive lookups of a lane without a plan after which the user gets a notice.
  static constexpr uint32_t kTellAfter = 32;

  explicit ComingSteps(StepStore* steps) : steps_(steps) {}

  // Returns an empty batch. Throws std::bad_alloc.
  std::unique_ptr<PlannedStep> New();
  // `window`: batches by which the pipeline may be ahead in this lane, at least 1. Throws std::bad_alloc.
  void Add(uint64_t lane, size_t window, std::unique_ptr<PlannedStep> step);

  struct Found {
    bool planned = false;
    uint64_t number = 0;        // its step's number, if its lookup has begun
    uint32_t planned_step = 0;  // its number among planned batches
    bool tell = false;          // give a notice: kTellAfter lookups of a planned lane had no plan
    uint64_t place = 0;         // the batch's number in its stream
    std::shared_ptr<const GlobalStep> global = nullptr;
  };
  // Returns place and global of the batch that Match would take, if it has a place.
  Found Peek(uint64_t lane, Span<const FeatureIds> features);
  // Takes the batch of a training lookup: step->plan and step->next_use become its own.
  Found Match(uint64_t lane, Span<const FeatureIds> features, Step* step);

  // Returns the others' keys of the step that is `steps` behind the batch at `place`; null: unknown so far.
  std::shared_ptr<const GlobalStep> Behind(uint64_t lane, uint64_t place, uint64_t steps);

  // Calls begin(step), with the mutex held, for a batch whose lookup may begin now: the next of its lane, if
  // that has not begun. Returns false if there is none.
  bool BeginNext(const std::function<void(PlannedStep*)>& begin);
  // Returns the numbers of begun steps that will not come.
  std::vector<uint64_t> TakeLeft();
  Vector<NextUses::Late> TakeLate();
  // Whether BeginNext, TakeLeft or TakeLate has work.
  bool any_to_do();
  // Drops all waiting batches, when tables are dropped.
  void Clear();

 private:
  using Steps = std::deque<std::unique_ptr<PlannedStep>>;
  struct Lane {
    Steps steps;             // oldest first
    uint32_t unplanned = 0;  // lookups since the last planned one
    uint64_t next = 0;       // the number after the last match
  };

  static Steps::iterator Find(Lane* lane, Span<const FeatureIds> features);
  static PlannedStep* NextOf(const Lane& lane);
  void RemoveOldest(Lane* lane);
  void Recycle(std::unique_ptr<PlannedStep> step);

  StepStore* const steps_;
  std::mutex mutex_;  // guards the members below
  std::map<uint64_t, Lane> lanes_;
  NextUses uses_;
  std::vector<uint64_t> left_;
  std::vector<std::unique_ptr<PlannedStep>> spare_;  // for reuse: their buffers are megabytes
};

}  // namespace het
