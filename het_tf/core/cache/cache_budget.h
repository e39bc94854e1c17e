// A limit on the bytes that the caches of some tables take together, and the rule by which they make room. A
// table whose size is given in rows has a budget of its own; the tables of a layer may share one.
//
// Every table takes what it needs while the sum fits. Otherwise room is made at the end of a step, from the
// lines of the lowest rank (eviction_policy.h) of all tables: of those used once, then twice, and so on. All
// tables give the same share of their lines of the last rank. A hit saves the bytes of a row, and a line
// costs them, so evicting the lines with the fewest uses costs the least traffic a byte, for any dims.
//
//   budget 390 bytes, lines of 10 bytes, 9 too many     lines used    once   twice   more    give
//                                                       "item"          20       5      5       6
//                                                       "user"          10       3      5       3
//
// Benefits: no tuning and no state, and as good as the best fixed division in hindsight, for the 26 tables of
// Criteo-like rows. Costs: O(1) while the sum fits, else O(tables) a rank. Each policy ages its own lines, so
// lines of a table that is no longer read keep their counts, and leave last. Under lru all lines have one
// rank: every table gives the same share, and those that miss the most grow.
//
// The caches of its tables own it together. Not thread-safe; the client that owns them locks.
#pragma once

#include <cstddef>

#include "het_tf/core/base/alloc.h"

namespace het {

class TableCache;

class CacheBudget {
 public:
  explicit CacheBudget(size_t bytes) : bytes_(bytes) {}

  size_t bytes() const { return bytes_; }
  // Bytes of the lines that count (LineMarks::resident).
  size_t used() const { return used_; }
  size_t left() const { return used_ < bytes_ ? bytes_ - used_ : 0; }

  // Adds a cache without lines. Throws std::bad_alloc.
  void Join(TableCache* cache) { caches_.push_back(cache); }
  void Leave(TableCache* cache);
  void Take(size_t bytes) { used_ += bytes; }
  void Give(size_t bytes) { used_ -= bytes; }

  // Evicts lines until `incoming` more bytes fit, as far as holds allow. Throws std::bad_alloc.
  void MakeRoom(size_t incoming);

 private:
  // Adds for each cache the lines of this rank that it gives, for `need` bytes; returns the bytes still
  // needed.
  size_t ShareOut(size_t rank, size_t need, Vector<size_t>* lines) const;

  const size_t bytes_;
  size_t used_ = 0;
  Vector<TableCache*> caches_;
};

}  // namespace het
