// Checks a row or a gradient for values other than zero.
#pragma once

#include <algorithm>
#include <cstddef>

namespace het {

// Returns whether any of n values is not zero (NaN is not zero).
inline bool AnyNonZero(const float* values, size_t n) {
  return std::any_of(values, values + n, [](float value) { return value != 0; });
}

}  // namespace het
