// The rows of a cache that have unsent ticks, in the order of their first unsent tick:
// CacheConfig::push_max_age limits the age of that tick.
//
//   Add (a tick finds nothing unsent) ──► entries, oldest first ──► Due ──► pushed ──► Forget
//
// An entry stays when its row's update is sent for another reason. It is *stale* then: the row has no unsent
// ticks, or its update was added again later. Due skips stale entries, so sending and eviction need not know
// this class. An update keeps its number while its row leaves the cache and comes back; its age goes along.
//
// A remainder of rounding (unsent.h) has no tick and no age: it waits for the row's next tick.
//
// Cost: 24 bytes an entry, of which about half may be stale, and 8 bytes an update. Add is O(1) amortized,
// Due O(1) for each due entry. Not thread-safe.
#pragma once

#include <limits>

#include "het_tf/core/base/alloc.h"
#include "het_tf/core/cache/lines.h"
#include "het_tf/core/cache/unsent.h"

namespace het {

class UnsentAges {
 public:
  // `most`: seconds.
  UnsentAges(double most, const Lines* lines, const Unsent* unsent)
      : most_(most), lines_(*lines), unsent_(*unsent) {}

  double most() const { return most_; }
  size_t entries() const { return entries_.size() - begin_; }
  size_t bytes() const;

  // Call before a tick of a line that has an update without ticks. Throws std::bad_alloc.
  void Add(uint32_t line, double now);
  // The time at which a row reaches the age, or an earlier one; infinity: no row has unsent ticks.
  double next_due() const {
    return entries() == 0 ? std::numeric_limits<double>::infinity() : entries_[begin_].due;
  }
  struct Rows {
    Vector<uint32_t> lines;
    bool queued = false;  // others are in the write-back queue
  };
  // Rows that reach the age by `time`. Throws std::bad_alloc.
  Rows Due(double time) const;
  // Call when these have been sent.
  void Forget(double time);

 private:
  static constexpr size_t kFewEntries = 1024;

  struct Entry {
    Key key;
    double due;
    uint64_t number;
  };

  bool InLine(const Entry& entry, uint32_t line) const;
  bool InQueue(const Entry& entry) const;
  // `now`: of the ticks that are being added.
  void DropStale(double now);

  const double most_;
  const Lines& lines_;
  const Unsent& unsent_;
  Vector<Entry> entries_;  // from begin_ on
  size_t begin_ = 0;
  size_t full_ = kFewEntries;  // at this size stale entries are dropped
  Vector<uint64_t> number_;    // of the newest entry, by update
  uint64_t added_ = 0;         // number of the newest entry of all
};

}  // namespace het
