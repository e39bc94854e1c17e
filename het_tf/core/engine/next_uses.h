// Which planned batch uses a row next, so that a cache keeps the rows that are used soonest (Belady's rule,
// as far as the pipeline sees). Batches are numbered as they are planned.
//
//   Add(batch)   its keys ──► the batch that used each of them last, if that still waits: its *next* use is
//   this
//                             one; else the row may be in the cache: *late*, the cache hears of it
//   End(batch)   its lookup is here, and takes its next uses along
//
// Nothing depends on them but which row leaves a cache: a wrong one costs a row that is fetched once more.
// Cost: one probe a key and batch, and 24 bytes for each key of the batches that wait, twice at most.
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
    uint32_t number;  // of the batch
  };

  // Numbers a batch. Args:
  //   tables  ids of its tables, by their number in the plan.
  //   next    gets an element for each entry of the plan: at a group's unique keys, the number of the next
  //           batch that uses the key, or 0 as long as there is none. It stays where it is until End.
  uint32_t Add(const BatchPlan& plan, const std::vector<uint64_t>& tables, Vector<uint32_t>* next);
  // The batch waits no more. Unknown numbers are fine.
  void End(uint32_t number);
  // Since the last call.
  Vector<Late> TakeLate() { return std::exchange(late_, {}); }
  bool any_late() const { return !late_.empty(); }
  void Clear();

 private:
  struct Use {
    uint32_t number;
    uint32_t place;  // in *next
  };
  using LastUses =
      boost::unordered_flat_map<Key, Use, KeyHash, std::equal_to<Key>, Allocator<std::pair<const Key, Use>>>;

  Vector<uint32_t>* Waiting(uint32_t number) const;
  void Sweep(LastUses* uses) const;

  uint32_t first_ = 1;                     // number of the oldest that waits
  std::deque<Vector<uint32_t>*> waiting_;  // from that one on; null: ended
  std::deque<size_t> keys_of_;             // of each of them
  size_t keys_ = 0;                        // of all that wait
  std::map<uint64_t, LastUses> tables_;    // the last use of each key; of some that do not wait any more
  Vector<Late> late_;
};

}  // namespace het
