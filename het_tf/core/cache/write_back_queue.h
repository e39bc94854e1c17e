// Updates of rows that have left the cache, until they are pushed or their row comes back.
#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>

#include "het_tf/core/base/alloc.h"
#include "het_tf/core/base/hash.h"
#include "het_tf/core/row/row_store.h"

namespace het {

class WriteBackQueue {
 public:
  struct Queued {
    Key key;
    uint32_t ticks;   // 0: no longer in the queue
    uint32_t update;  // in the cache's UpdatePool
  };

  size_t size() const { return size_; }
  // In the order in which they came; among them some that are no longer in the queue.
  const Vector<Queued>& entries() const { return entries_; }
  size_t bytes() const { return entries_.capacity() * sizeof(Queued); }
  // Null: there is none. Good until the queue next changes.
  const Queued* Find(Key key) const {
    if (size_ == 0) return nullptr;
    const auto found = index_.find(key);
    return found == index_.end() ? nullptr : &entries_[found->second];
  }

  // Throws std::bad_alloc; then the queue is as it was.
  void Push(Key key, uint32_t ticks, uint32_t update);
  void Remove(const Queued& queued);
  // Calls take(queued) for each queued update, in order, and removes it if that returns true.
  template <typename Fn>
  void RemoveIf(Fn take) {
    for (Queued& queued : entries_) {
      if (queued.ticks == 0 || !take(queued)) continue;
      index_.erase(queued.key);
      queued.ticks = 0;
      --size_;
    }
    if (size_ == 0) entries_.clear();
  }

 private:
  Vector<Queued> entries_;
  size_t size_ = 0;  // entries that are in the queue
  boost::unordered_flat_map<Key, uint32_t, KeyHash, std::equal_to<Key>,
                            Allocator<std::pair<const Key, uint32_t>>>
      index_;  // into entries_
};

}  // namespace het
