// How steps of AdaGrad's family shrink with a row's age.
//
// AdaGrad divides by the root of a *sum* of squares, so its n-th step is about lr / sqrt(n): a row's first
// steps are the largest. With the row's mean square v = accumulator / (n + 1) after its n earlier ticks, the
// family is
//
//   step = lr / sqrt(1 + n / decay_steps) * g / sqrt(v)  =  lr * g / sqrt(Of(n) * accumulator)
//
// decay_steps = 1 is AdaGrad, where Of(n) is exactly 1. With larger ones the first decay_steps steps or so
// have about the size lr, and later ones that of AdaGrad at the rate lr * sqrt(decay_steps).
//
// n may be too small, in a row that came without its clock or after 2^20 ticks: steps are then smaller than
// the formula's, never larger.
#pragma once

#include "het_tf/core/row/optimizers/formulas.h"

namespace het {

class Shrink {
 public:
  explicit Shrink(double decay_steps) : inverse_(static_cast<float>(1 / decay_steps)) {}

  float Of(float n) const { return formulas::Shrink(inverse_, n); }
  bool uses_age() const { return inverse_ != 1.0f; }
  double decay_steps() const { return 1 / double{inverse_}; }

 private:
  float inverse_;
};

}  // namespace het
