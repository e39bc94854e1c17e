#include "het_tf/core/store/large_changes.h"

#include <algorithm>
#include <cmath>

namespace het {

void LargeChanges::Before(const float* value) { std::copy_n(value, before_.size(), before_.data()); }

void LargeChanges::After(uint32_t row, const float* value, uint64_t number) {
  double step = 0, length = 0;
  for (size_t i = 0; i < before_.size(); ++i) {
    const double now = value[i], moved = now - before_[i];
    step += moved * moved;
    length += now * now;
  }
  const double sum = Sum(row) + std::sqrt(step);
  // A sum that is not a number counts as large, too.
  if (sum <= fraction_ * std::sqrt(length) && sum < kNew) {
    Sum(row) = static_cast<float>(sum);
  } else {
    Set(row, number);
  }
}

}  // namespace het
