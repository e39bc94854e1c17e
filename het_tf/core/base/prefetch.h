// Has the CPU fetch memory that will be used soon.
#pragma once

#include <cstddef>

namespace het {

// The cache lines of `bytes` bytes from `data` on.
template <bool for_write = false>
inline void Prefetch(const void* data, size_t bytes) {
  const char* const first = static_cast<const char*>(data);
  for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(first + at, for_write ? 1 : 0);
  // GCC takes a function that only prefetches for one without effects, and removes calls of it.
  asm volatile("");
}

}  // namespace het
