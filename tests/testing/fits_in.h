// Memory that ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include "het_tf/core/base/alloc.h"

namespace het::testing {

// Calls call(), which may take so many bytes more. Returns false if it threw for lack of memory.
template <typename Call>
bool FitsIn(size_t bytes, const Call& call) {
  SetAllocLimit(AllocatedBytes() + bytes);
  bool fits = true;
  try {
    call();
  } catch (const std::bad_alloc&) {
    fits = false;
  }
  SetAllocLimit(SIZE_MAX);
  return fits;
}

}  // namespace het::testing
