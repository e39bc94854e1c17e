// Finds the planned batch that uses a row next, so that a cache keeps the rows that are used soonest
// (Belady's rule, as far as the pipeline sees). Batches are numbered in the order of planning.
//
//   Add(batch)   for each key: if the batch that used it last still waits, its *next* use is this batch;
//                else the row may be in the cache: a *late* use, of which the cache is notified
//   End(batch)   its lookup has come, and takes its next uses
//
// They affect only the choice of the row to evict: a wrong one costs one more fetch. Cost: one probe for each
// key of a batch, and 24 to 48 bytes for each key of waiting batches.
//
// Not thread-safe; ComingSteps locks.
#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "het_tf/core/base/alloc.h"
#include "het_tf/core/base/hash.h"
#include "het_tf/core/plan/batch_plan.h"

namespace het {

class NextUses {
 public:
  // A key that a batch uses, and that no waiting batch used before.
  struct Late {
    uint64_t table;
    Key key;
    uint64_t hash;
    uint32_t number;  // the batch's number
  };

  // Numbers a batch. Args:
  //   tables  ids of its tables, indexed as in the plan.
  //   next    gets one element for each entry of the plan: at a group's unique keys, the number of the next
  //           batch that uses the key, or 0 until there is one. It must not move until End.
  uint32_t Add(const BatchPlan& plan, const std::vector<uint64_t>& tables, Vector<uint32_t>* next);
  // The batch no longer waits. Unknown numbers are ignored.
  void End(uint32_t number);
  // Returns the late uses since the last call.
  Vector<Late> TakeLate() { return std::exchange(late_, {}); }
  bool any_late() const { return !late_.empty(); }
  void Clear();

 private:
  struct Use {
    uint32_t number;
    uint32_t place;  // index in *next
  };
  using LastUses =
      boost::unordered_flat_map<Key, Use, KeyHash, std::equal_to<Key>, Allocator<std::pair<const Key, Use>>>;

  Vector<uint32_t>* Waiting(uint32_t number) const;
  void Sweep(LastUses* uses) const;

  uint32_t first_ = 1;                     // number of the oldest waiting batch
  std::deque<Vector<uint32_t>*> waiting_;  // from first_ on; null: ended
  std::deque<size_t> keys_of_;             // number of keys of each
  size_t keys_ = 0;                        // number of keys of all waiting batches
  std::map<uint64_t, LastUses> tables_;    // the last use of each key, some of ended batches
  Vector<Late> late_;
};

}  // namespace het
