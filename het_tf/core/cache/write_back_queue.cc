#include "het_tf/core/cache/write_back_queue.h"

namespace het {

void WriteBackQueue::Push(Key key, uint32_t ticks, uint32_t update) {
  index_[key] = static_cast<uint32_t>(entries_.size());
  try {
    entries_.push_back({key, ticks, update});
  } catch (...) {
    index_.erase(key);
    throw;
  }
  ++size_;
}

void WriteBackQueue::Remove(const Queued& queued) {
  const uint32_t at = index_.at(queued.key);
  index_.erase(queued.key);
  entries_[at].ticks = 0;
  if (--size_ == 0) entries_.clear();
}

}  // namespace het
