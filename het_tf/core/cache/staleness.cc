#include "het_tf/core/cache/staleness.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace het {
namespace {
double Env(const char* name, double value) {
  const char* text = std::getenv(name);
  return text == nullptr ? value : std::atof(text);
}
}  // namespace

StalenessBounds StalenessBounds::Of(const std::string& optimizer, int64_t staleness, uint32_t workers) {
  const double kEvery = Env("HET_EVERY", 20), kMostOfOthers = Env("HET_OTHERS", 10);
  if (staleness == 0 || staleness == kUnbounded || workers == 1) return {staleness, staleness};
  const bool shrinks = optimizer == "row_wise_adagrad" || optimizer == "adagrad" || optimizer == "ftrl";
  if (!shrinks) return {std::min<int64_t>(staleness, kMostOfOthers), Bound(0, 1)};
  const double share = Env("HET_SHARE", 0.775) * std::max(1u, workers - 1);
  const auto most = Env("HET_PUSH_CAP", std::floor(staleness / share));
  return {Bound(staleness, kEvery), Bound(static_cast<int64_t>(most), static_cast<uint32_t>(std::lround(Env("HET_PUSH_EVERY", kEvery) * share)))};
}

}  // namespace het
