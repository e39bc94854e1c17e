#include "het_tf/core/cache/staleness.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace het {
namespace {

constexpr uint32_t kEvery = 10;
constexpr int64_t kMostOfOthers = 10;
constexpr double kShare = 0.775;

bool StepsShrink(const std::string& optimizer) {
  constexpr std::array<const char*, 3> kShrinking = {"row_wise_adagrad", "adagrad", "ftrl"};
  return std::find(kShrinking.begin(), kShrinking.end(), optimizer) != kShrinking.end();
}

}  // namespace

StalenessBounds StalenessBounds::Of(const std::string& optimizer, int64_t staleness, uint32_t workers) {
  if (staleness == 0 || staleness == kUnbounded || workers == 1) return {staleness, staleness};
  if (!StepsShrink(optimizer)) return {std::min(staleness, kMostOfOthers), Bound(0, 1)};
  const double share = kShare * (workers - 1);
  const auto most = static_cast<int64_t>(static_cast<double>(staleness) / share);
  return {Bound(staleness, kEvery), Bound(most, static_cast<uint32_t>(std::lround(kEvery * share)))};
}

}  // namespace het
