#pragma once

#include <cstddef>
#include <numeric>
#include <vector>

#include "het_tf/core/base/hash.h"

namespace het::testing {

// first, first + 1, ...: so many keys, or ids.
inline std::vector<Key> Range(Key first, size_t n) {
  std::vector<Key> keys(n);
  std::iota(keys.begin(), keys.end(), first);
  return keys;
}

}  // namespace het::testing
