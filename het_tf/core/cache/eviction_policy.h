// Chooses the line that leaves a full cache. A policy sees only line numbers; it is a function of its calls,
// so that it gives the same victims for a recorded trace.
//
//   lru  the line that was not touched for the longest time
//   lfu  the line with the fewest touches; on a tie the one that reached that count first. Counts are halved
//        after every 12 * capacity touches, so that yesterday's favourites leave; and quartered as often as
//        the share of hits falls (HitWatch), so that they leave at once when all of the working set is
//        another one
//
// Cost: Insert, Touch, Pass and Erase O(1). Victims O(victims + lines that must stay). Ageing O(lines),
// rarely. Not thread-safe; the cache that owns it locks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "het_tf/core/base/alloc.h"
#include "het_tf/core/cache/cache_config.h"
#include "het_tf/core/cache/line_lists.h"

namespace het {

// A policy keeps its lines in lists: list 0 goes first, and of a list its back.
class EvictionPolicy {
 public:
  // Ranks of lines, by which caches with a shared budget compare them: rank 0 leaves first. Under lfu a
  // line's uses minus one; under lru all lines have rank 0.
  static constexpr size_t kRanks = 255;

  static std::unique_ptr<EvictionPolicy> Create(Policy policy, size_t capacity);
  virtual ~EvictionPolicy() = default;

  // Throws std::bad_alloc, without the line.
  virtual void Insert(uint32_t line) = 0;
  virtual void Touch(uint32_t line) = 0;
  virtual void Erase(uint32_t line) = 0;
  // The line will be touched soon.
  void Prefetch(uint32_t line) const { lists_.Prefetch(line); }
  size_t LinesOfRank(size_t rank) const { return rank < list_count_ ? lists_.size(rank) : 0; }
  // Sets the capacity, from which the time of ageing follows.
  virtual void SetCapacity(size_t) {}
  // Appends up to `count` lines with may_go(line), in order of eviction.
  template <typename MayGo>
  void Victims(size_t count, const MayGo& may_go, Vector<uint32_t>* victims) const {
    for (size_t list = 0; list < list_count_ && count > 0; ++list) {
      for (uint32_t line = lists_.back(list); line != LineLists::kNone && count > 0;
           line = lists_.before(line)) {
        if (!may_go(line)) continue;
        victims->push_back(line);
        --count;
      }
    }
  }

 protected:
  explicit EvictionPolicy(size_t lists) : list_count_(lists), lists_(lists) {}

  const size_t list_count_;
  LineLists lists_;
};

}  // namespace het
