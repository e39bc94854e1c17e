#include "het_tf/core/cache/unsent_ages.h"

#include <algorithm>

namespace het {

size_t UnsentAges::bytes() const {
  return entries_.capacity() * sizeof(Entry) + number_.capacity() * sizeof(uint64_t);
}

void UnsentAges::Add(uint32_t line, double now) {
  const uint32_t update = lines_.state(line).update;
  if (update >= number_.size()) number_.resize(update + update / 2 + 16);
  if (entries_.size() >= full_) DropStale(now);
  entries_.push_back({lines_.meta(line).key, now + most_, ++added_});
  number_[update] = added_;
}

bool UnsentAges::InLine(const Entry& entry, uint32_t line) const {
  return lines_.pending(line) > 0 && number_[lines_.state(line).update] == entry.number;
}

bool UnsentAges::InQueue(const Entry& entry) const {
  const WriteBackQueue::Queued* const queued = unsent_.queue().Find(entry.key);
  return queued != nullptr && number_[queued->update] == entry.number;
}

UnsentAges::Rows UnsentAges::Due(double time) const {
  Rows rows;
  for (size_t i = begin_; i < entries_.size() && entries_[i].due <= time; ++i) {
    const uint32_t line = lines_.Find(entries_[i].key);
    if (line == kNoRow) {
      rows.queued = rows.queued || InQueue(entries_[i]);
    } else if (InLine(entries_[i], line)) {
      rows.lines.push_back(line);
    }
  }
  return rows;
}

void UnsentAges::Forget(double time) {
  while (begin_ < entries_.size() && entries_[begin_].due <= time) ++begin_;
  if (begin_ < entries_.size()) return;
  entries_.clear();
  begin_ = 0;
}

void UnsentAges::DropStale(double now) {
  const auto stale = [this, now](const Entry& entry) {
    if (entry.due >= now + most_) return false;  // its tick comes next
    const uint32_t line = lines_.Find(entry.key);
    return !(line == kNoRow ? InQueue(entry) : InLine(entry, line));
  };
  const auto begin = entries_.begin();
  entries_.erase(begin, begin + static_cast<ptrdiff_t>(begin_));
  begin_ = 0;
  entries_.erase(std::remove_if(entries_.begin(), entries_.end(), stale), entries_.end());
  full_ = std::max(kFewEntries, 2 * entries_.size());
}

}  // namespace het
