#include "het_tf/core/store/change_log.h"

#include <algorithm>
#include <new>

namespace het {

void ChangeLog::DropFirst() {
  lost_ = removals_.front().number;
  removals_.pop_front();
  ++first_;
}

void ChangeLog::Removed(uint64_t table, Key key) {
  while (!removals_.empty() && removals_.size() >= most_) DropFirst();
  try {
    if (most_ == 0) throw std::bad_alloc();
    removals_.push_back({now_, table, key});
  } catch (const std::bad_alloc&) {
    first_ += removals_.size();
    removals_.clear();
    lost_ = now_;
  }
}

uint64_t ChangeLog::After(uint64_t number) const {
  const auto at = std::upper_bound(removals_.begin(), removals_.end(), number,
                                   [](uint64_t n, const Removal& removal) { return n < removal.number; });
  return first_ + static_cast<uint64_t>(at - removals_.begin());
}

}  // namespace het
