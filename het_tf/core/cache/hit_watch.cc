#include "het_tf/core/cache/hit_watch.h"

#include <cmath>

namespace het {

bool HitWatch::EndWindow() {
  const double expected = share_ * static_cast<double>(uses_);
  const double now = static_cast<double>(hits_) / static_cast<double>(uses_);
  // The standard deviation of the hits is below sqrt(expected).
  const bool fell = static_cast<double>(hits_) < 0.75 * expected - 3 * std::sqrt(expected);
  share_ = now > share_ ? now : fell ? 0.9 * share_ : share_ + (now - share_) / 8;
  uses_ = hits_ = 0;
  return fell;
}

}  // namespace het
