// The bytes that the caches of some tables may take together, and who gives room when they take more. A table
// whose size is given in rows has a budget of its own; the tables of a layer may share one.
//
// Every table takes what it needs while the sum fits. Then room is made at the end of a step, from the lines
// of the lowest rank (eviction_policy.h) of all tables: of those used once, then twice, and so on. Of the
// last rank that is needed all tables give the same share. A hit saves the bytes of a row, and a line costs
// them, so the lines of the fewest uses are those whose loss costs the least traffic a byte, whatever the
// dims are.
//
//   budget 390 bytes, lines of 10 bytes, 9 too many     lines used    once   twice   more    give
//                                                       "item"          20       5      5       6
//                                                       "user"          10       3      5       3
//
// Benefits: nothing to tune or to remember, and as good as the best fixed division, known afterwards, of the
// 26 tables of Criteo-like rows. Costs: O(1) while the sum fits, else O(tables) a rank. Ageing is each
// policy's own, so lines of a table that is read no more at all keep their counts, and leave last. Under lru
// all lines have one rank: every table gives the same share, and those that miss the most grow.
//
// Owned by the caches of its tables together. Not thread-safe; the client that owns them locks.
#pragma once

#include <cstddef>

#include "het_tf/core/base/alloc.h"

namespace het {

class TableCache;

class CacheBudget {
 public:
  explicit CacheBudget(size_t bytes) : bytes_(bytes) {}

  size_t bytes() const { return bytes_; }
  // Less than is used: lines leave when room is next made.
  void set_bytes(size_t bytes) { bytes_ = bytes; }
  // Of the lines that count (LineMarks::resident).
  size_t used() const { return used_; }
  size_t left() const { return used_ < bytes_ ? bytes_ - used_ : 0; }

  // A cache begins, without lines, and ends. Throws std::bad_alloc.
  void Join(TableCache* cache) { caches_.push_back(cache); }
  void Leave(TableCache* cache);
  void Take(size_t bytes) { used_ += bytes; }
  void Give(size_t bytes) { used_ -= bytes; }

  // Lets lines go until `incoming` bytes more fit, as far as holds allow. Throws std::bad_alloc.
  void MakeRoom(size_t incoming);

 private:
  // Adds for each cache how many lines of this rank it gives, for `need` bytes; returns what is still needed.
  size_t ShareOut(size_t rank, size_t need, Vector<size_t>* lines) const;

  size_t bytes_;
  size_t used_ = 0;
  Vector<TableCache*> caches_;
};

}  // namespace het
