// An uninitialised array that keeps its memory from step to step: clearing megabytes before overwriting them
// would cost as much as the work itself.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "het_tf/core/base/alloc.h"

namespace het {

template <typename T>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Buffer() = default;
  ~Buffer() { Release(data_, capacity_ * sizeof(T), kAlignment); }
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }

  // Makes room for `size` elements and loses old ones. Throws std::bad_alloc and is empty then.
  T* Resize(size_t size) {
    if (size > capacity_) {
      Release(data_, capacity_ * sizeof(T), kAlignment);
      data_ = nullptr;
      capacity_ = 0;
      const size_t wanted = size + size / 4;
      data_ = static_cast<T*>(Allocate(wanted * sizeof(T), kAlignment));
      capacity_ = wanted;
    }
    return data_;
  }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }

 private:
  static constexpr size_t kAlignment = 64;
  T* data_ = nullptr;
  size_t capacity_ = 0;
};

}  // namespace het
