// Chooses the line that leaves a full cache. A policy sees only line numbers; it is a function of its calls,
// so that it gives the same victims for a recorded trace.
//
//   lru        the line that was not touched for the longest time
//   lfu        the line with the fewest touches; on a tie the one that reached that count first. Counts are
//              halved after every 12 * capacity touches, so that yesterday's favourites leave; and
//              quartered as often as the share of hits falls (HitWatch), so that they leave at
//              once when all of the working set is another one
//   light_lfu  as lfu, but counting stops at 8: touching a hot line costs nothing (HET's LFUOpt). Unlike
//              HET's, it forgets: hot lines fall back to 4 at every ageing
//
// Cost: Insert, Touch, Pass and Erase O(1). Victims O(victims + lines that must stay). Ageing O(lines),
// rarely. Not thread-safe; the cache that owns it locks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "het_tf/core/base/alloc.h"
#include "het_tf/core/cache/cache_config.h"

namespace het {

class EvictionPolicy {
 public:
  // Ranks of lines, by which caches with a shared budget compare them: rank 0 leaves first. Under lfu and
  // light_lfu a line's uses minus one; under lru all lines have rank 0.
  static constexpr size_t kRanks = 255;

  static std::unique_ptr<EvictionPolicy> Create(Policy policy, size_t capacity);
  virtual ~EvictionPolicy() = default;

  // Throws std::bad_alloc, without the line.
  virtual void Insert(uint32_t line) = 0;
  virtual void Touch(uint32_t line) = 0;
  // The line will be touched soon.
  virtual void Prefetch(uint32_t) const {}
  virtual void Erase(uint32_t line) = 0;
  virtual size_t LinesOfRank(size_t rank) const = 0;
  // Sets the capacity, from which the time of ageing follows.
  virtual void SetCapacity(size_t) {}
  // Appends up to `count` lines with may_go(line), in order of eviction. Changes nothing.
  virtual void Victims(size_t count, const std::function<bool(uint32_t)>& may_go,
                       Vector<uint32_t>* victims) const = 0;
};

}  // namespace het
