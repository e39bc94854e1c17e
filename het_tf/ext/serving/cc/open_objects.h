// Objects that a process opens once and shares while somebody holds them, such as mapped files.
//
// Thread-safe. Whoever opens an object holds a mutex of that object alone: calls for others do not wait.
#pragma once

#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "het_tf/core/base/status.h"

namespace het {

template <typename Key, typename T>
class OpenObjects {
 public:
  // Returns the object of `key`, or what `open` returns, a Result<std::shared_ptr<T>>, if nobody holds one.
  template <typename Open>
  Result<std::shared_ptr<T>> Get(const Key& key, const Open& open) {
    const std::shared_ptr<Slot> slot = SlotOf(key);
    std::lock_guard<std::mutex> lock(slot->mutex);
    if (auto object = slot->object.lock()) return object;
    HET_ASSIGN_OR_RETURN(std::shared_ptr<T> object, open());
    slot->object = object;
    return object;
  }

 private:
  struct Slot {
    std::mutex mutex;
    std::weak_ptr<T> object;
  };

  std::shared_ptr<Slot> SlotOf(const Key& key) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto it = slots_.begin(); it != slots_.end();) {
      const std::shared_ptr<Slot> slot = it->second;
      std::unique_lock<std::mutex> of_slot(slot->mutex, std::try_to_lock);
      // A slot that another thread is about to open has a third owner.
      const bool unused = of_slot.owns_lock() && slot.use_count() == 2 && slot->object.expired();
      it = unused ? slots_.erase(it) : std::next(it);
    }
    std::shared_ptr<Slot>& slot = slots_[key];
    if (slot == nullptr) slot = std::make_shared<Slot>();
    return slot;
  }

  std::mutex mutex_;  // guards slots_
  std::map<Key, std::shared_ptr<Slot>> slots_;
};

}  // namespace het
