// A partition's changes, numbered from 1 on, and the keys that were removed lately.
//
// A reader that has everything up to a number asks for the changes since (changes.h). The rows remember
// their numbers (change_numbers.h), removed keys are in a bounded list here. A reader from before the list's
// start must be given the keys of the whole partition.
//
// Soft state: it is never saved or replicated. A partition with another incarnation begins at 0.
#pragma once

#include <cstdint>
#include <deque>

#include "het_tf/core/base/alloc.h"
#include "het_tf/core/base/hash.h"

namespace het {

class ChangeLog {
 public:
  static constexpr size_t kMostRemovals = 16384;

  struct Removal {
    uint64_t number;
    uint64_t table;
    Key key;
  };

  // The number of the last change; 0: there was none.
  uint64_t now() const { return now_; }
  // Counts a change, and returns its number.
  uint64_t Next() { return ++now_; }

  // Records that the change now() removed a key. Never fails: without memory the list begins anew.
  void Removed(uint64_t table, Key key);
  // Counts a change for which there is no record, such as a dropped table.
  void Unrecorded() { unrecorded_ = Next(); }

  // Whether the changes since `number` are known, at least from the rows and all keys.
  bool KnowsSince(uint64_t number) const { return number >= unrecorded_ && number <= now_; }
  // Whether the list has all removals since `number`.
  bool HasRemovalsSince(uint64_t number) const { return number >= lost_; }

  // Removals have positions that grow: [begin(), end()).
  uint64_t begin() const { return first_; }
  uint64_t end() const { return first_ + removals_.size(); }
  const Removal& at(uint64_t position) const { return removals_[position - first_]; }
  // The position of the first removal after change `number`.
  uint64_t After(uint64_t number) const;

  void set_most_removals(size_t most) { most_ = most; }
  size_t bytes() const { return removals_.size() * sizeof(Removal); }

 private:
  void DropFirst();

  uint64_t now_ = 0;
  uint64_t unrecorded_ = 0;
  uint64_t lost_ = 0;  // the number of the last removal that the list has lost
  uint64_t first_ = 0;
  size_t most_ = kMostRemovals;
  std::deque<Removal, Allocator<Removal>> removals_;
};

}  // namespace het
