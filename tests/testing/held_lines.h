#pragma once

#include "het_tf/core/cache/table_cache.h"

namespace het::testing {

// How many lines of a cache are held.
inline size_t HeldLines(const TableCache& cache) {
  size_t held = 0;
  cache.lines().ForEach([&](uint32_t line) { held += cache.marks().held(line); });
  return held;
}

}  // namespace het::testing
