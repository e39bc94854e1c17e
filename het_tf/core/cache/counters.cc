#include "het_tf/core/cache/counters.h"

#include <cmath>

namespace het {

Staleness Counters::staleness() const {
  Staleness seen;
  for (uint64_t count : lag_histogram) seen.observed += count;
  double sum = 0;
  uint64_t below = 0;
  for (int i = 0; i < 65; ++i) {
    if (lag_histogram[i] == 0) continue;
    const double upper = i == 0 ? 0 : std::ldexp(1.0, i) - 1;
    sum += upper * static_cast<double>(lag_histogram[i]);
    if (static_cast<double>(below) < 0.99 * static_cast<double>(seen.observed)) seen.p99 = upper;
    below += lag_histogram[i];
    seen.max = upper;
  }
  if (seen.observed != 0) seen.mean = sum / static_cast<double>(seen.observed);
  return seen;
}

}  // namespace het
