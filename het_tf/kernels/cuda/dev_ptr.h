// The basis of all files here: function qualifiers, and pointers to device memory.
//
// One set of sources is compiled twice, by nvcc for a GPU and by g++ for the host executor. HET_DEV marks
// functions that run only in kernels, and only these can dereference a Dev<T>: nvcc rejects host code that
// reads device memory, and the host executor keeps device memory at addresses that cannot be read
// (tests/ext/gpu/device/host/memory.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "het_tf/core/base/hash.h"  // HET_HOST_DEVICE, hashes of keys

#ifdef __CUDACC__
#define HET_DEV __device__ __forceinline__
#else
#define HET_DEV inline
#include "tests/ext/gpu/device/host/memory.h"
#endif

namespace het::dev {

// For Tile::CopyRows (tile.h).
constexpr uint32_t kNoRow = ~uint32_t{0};
constexpr uint32_t kZeros = kNoRow - 1;

template <typename T>
class Dev {
 public:
  HET_HOST_DEVICE Dev() : address_(nullptr) {}
  HET_HOST_DEVICE explicit Dev(T* address) : address_(address) {}
  // From T to const T.
  template <typename U, typename = std::enable_if_t<std::is_convertible_v<U*, T*>>>
  HET_HOST_DEVICE Dev(const Dev<U>& other) : address_(other.raw()) {}

  // The address, for passing on; a kernel uses the conversions below.
  HET_HOST_DEVICE T* raw() const { return address_; }
  HET_HOST_DEVICE bool null() const { return address_ == nullptr; }
  HET_HOST_DEVICE Dev Plus(size_t n) const { return Dev(address_ + n); }

#ifdef __CUDACC__
  HET_DEV operator T*() const { return address_; }
#else
  HET_DEV operator T*() const { return ReadableAddress(address_); }
#endif

 private:
  T* address_;
};

}  // namespace het::dev
