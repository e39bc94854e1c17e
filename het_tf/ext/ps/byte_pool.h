// Recycled byte buffers. A large step's frame takes tens of kilobytes to megabytes, and fresh memory costs a
// page fault a page: that took a third of a client's time.
//
// Not thread-safe.
#pragma once

#include <utility>
#include <vector>

#include "het_tf/core/base/bytes.h"

namespace het {

class BytePool {
 public:
  // `most`: bytes to keep at most.
  explicit BytePool(size_t most = size_t{64} << 20) : most_(most) {}

  // An empty buffer with room for `size` bytes. If it throws std::bad_alloc, a kept buffer may be lost.
  Bytes Take(size_t size) {
    Bytes bytes;
    if (!kept_.empty()) {
      // Buffers of one kind of step have similar sizes: the last ones probably include one that fits.
      size_t at = kept_.size() - 1;
      for (size_t tried = 0; at > 0 && tried < kTries && kept_[at].capacity() < size; ++tried) --at;
      std::swap(kept_[at], kept_.back());
      bytes = std::move(kept_.back());
      kept_.pop_back();
      held_ -= bytes.capacity();
    }
    bytes.clear();
    bytes.reserve(size);
    return bytes;
  }

  void Give(Bytes bytes) {
    if (bytes.capacity() < kSmallest || kept_.size() == kMost || bytes.capacity() > most_ - held_) return;
    held_ += bytes.capacity();
    kept_.push_back(std::move(bytes));
  }

 private:
  static constexpr size_t kTries = 8;
  static constexpr size_t kSmallest = 4096;  // malloc handles smaller buffers well
  static constexpr size_t kMost = 1024;

  const size_t most_;
  size_t held_ = 0;
  std::vector<Bytes> kept_;
};

}  // namespace het
