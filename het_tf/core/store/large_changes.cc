#include "het_tf/core/store/large_changes.h"

#include <algorithm>
#include <cmath>

namespace het {

void LargeChanges::Before(const float* value) { std::copy_n(value, before_.size(), before_.data()); }

void LargeChanges::After(uint32_t row, const float* value, uint64_t number) {
  // Several sums, as a compiler may not reorder the additions of one.
  constexpr size_t kSums = 4;
  double steps[kSums] = {}, lengths[kSums] = {};
  const auto add = [&](size_t i, size_t to) {
    const double now = value[i], moved = now - before_[i];
    steps[to] += moved * moved;
    lengths[to] += now * now;
  };
  const size_t dim = before_.size();
  size_t i = 0;
  for (; i + kSums <= dim; i += kSums) {
    for (size_t j = 0; j < kSums; ++j) add(i + j, j);
  }
  for (; i < dim; ++i) add(i, 0);
  const double length = std::sqrt(lengths[0] + lengths[1] + lengths[2] + lengths[3]);
  const double step = std::sqrt(steps[0] + steps[1] + steps[2] + steps[3]);
  const double sum = Sum(row) + step;
  // A sum that is not a number counts as large, too.
  if (sum <= fraction_ * length && std::isfinite(sum)) {
    Sum(row) = static_cast<float>(sum);
  } else {
    Set(row, number);
  }
}

}  // namespace het
