#include "het_tf/core/cache/staleness.h"

#include <algorithm>
#include <cmath>

namespace het {
namespace {

constexpr uint32_t kEvery = 10;
constexpr int64_t kMostOfOthers = 3;
constexpr double kShare = 0.775;

}  // namespace

StalenessBounds StalenessBounds::Of(bool steps_shrink, int64_t staleness, uint32_t workers) {
  if (staleness == 0 || staleness == kUnbounded || workers == 1) return {staleness, staleness};
  if (!steps_shrink) return {Bound(std::min(staleness, kMostOfOthers), kEvery), Bound(0, 1)};
  const double share = kShare * (workers - 1);
  const auto most = static_cast<int64_t>(static_cast<double>(staleness) / share);
  return {Bound(staleness, kEvery), Bound(most, static_cast<uint32_t>(std::lround(kEvery * share)))};
}

}  // namespace het
