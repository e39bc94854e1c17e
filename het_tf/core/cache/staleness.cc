#include "het_tf/core/cache/staleness.h"

#include <algorithm>
#include <cmath>

namespace het {
namespace {

constexpr uint32_t kEvery = 10;
constexpr uint32_t kMostEarly = 3;
constexpr double kShare = 0.775;
// The steps, as shares of a row's first one, from which on reads and writes may be late.
constexpr double kStepOfReads = 1.0 / 5;
constexpr double kStepOfWrites = 1.0 / 7;

// AdaGrad's bound min(most, age / every), where steps shrink later: at most `early` as long as they are
// larger than `step`. No row is as old as kBirthGap.
Bound ByAge(double decay_steps, Bound bound, uint32_t early, double step) {
  if (decay_steps <= 1) return bound;
  const double from = std::round(decay_steps * (1 / (step * step) - 1));
  return {bound.most, bound.every, early, static_cast<uint32_t>(std::min<double>(kBirthGap, from))};
}

}  // namespace

StalenessBounds StalenessBounds::Of(double decay_steps, int64_t staleness, uint32_t workers) {
  if (staleness == 0 || staleness == kUnbounded || workers == 1) return {staleness, staleness};
  const double share = kShare * (workers - 1);
  const auto most = static_cast<int64_t>(static_cast<double>(staleness) / share);
  const auto every = static_cast<uint32_t>(std::lround(kEvery * share));
  return {ByAge(decay_steps, {staleness, kEvery}, kMostEarly, kStepOfReads),
          ByAge(decay_steps, {most, every}, 0, kStepOfWrites)};
}

}  // namespace het
