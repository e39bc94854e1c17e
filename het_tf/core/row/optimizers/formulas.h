// The formula of each optimizer for one element of a row: what the loop of the CPU (loop.h) and the packs of
// a GPU (kernels/cuda/optimizer_tick.h) compute, so both get the same bits. The files beside this one have
// the sources. The compiler must not fuse or reorder operations: g++ needs -ffp-contract=off, nvcc
// -fmad=false.
//
// A formula has the parameters of a tick, and
//
//   kSlots                 slots of dim floats that it reads and writes
//   f(g, value, s, dv, a)  g: the gradient. value and s[kSlots]: of the row. dv and a[kSlots]: of the update;
//                          what is computed for them alone goes where nobody keeps an update
#pragma once

#include <cmath>

#include "het_tf/core/base/hash.h"  // HET_HOST_DEVICE

namespace het::formulas {

// SGD; with the row's own rate also RowWiseAdagrad.
struct Sgd {
  static constexpr int kSlots = 0;
  float lr;

  HET_HOST_DEVICE void operator()(float g, float* value, float*, float* dv, float*) const {
    const float step = lr * g;
    *value -= step;
    *dv -= step;
  }
};

template <bool kNesterov>
struct Momentum {
  static constexpr int kSlots = 1;
  float lr, mu;

  HET_HOST_DEVICE void operator()(float g, float* value, float* s, float* dv, float* a) const {
    const float step = lr * g;
    s[0] = mu * s[0] - step;
    const float change = kNesterov ? mu * s[0] - step : s[0];
    *value += change;
    *dv += change;
    a[0] = mu * a[0] - step;
  }
};

struct Rmsprop {
  static constexpr int kSlots = 1;
  float lr, rho, one_minus_rho, epsilon;

  HET_HOST_DEVICE void operator()(float g, float* value, float* s, float* dv, float* a) const {
    const float term = one_minus_rho * (g * g);
    s[0] = rho * s[0] + term;
    const float step = lr * g / std::sqrt(s[0] + epsilon);
    *value -= step;
    *dv -= step;
    a[0] = rho * a[0] + term;
  }
};

// What shrinks the steps of AdaGrad's family in a row of this age (shrink.h).
HET_HOST_DEVICE inline float Shrink(float inverse_decay_steps, float age) {
  return (1.0f + age * inverse_decay_steps) / (1.0f + age);
}

struct Adagrad {
  static constexpr int kSlots = 1;
  float rate, epsilon;  // the rate of a row of this age

  HET_HOST_DEVICE void operator()(float g, float* value, float* s, float* dv, float* a) const {
    const float square = g * g;
    s[0] += square;
    const float step = rate * g / std::sqrt(s[0] + epsilon);
    *value -= step;
    *dv -= step;
    a[0] += square;
  }
};

// Without kM there is no slot m, which is the gradient.
template <bool kM>
struct Adam {
  static constexpr int kSlots = kM ? 2 : 1;
  float alpha, b1, b2, c1, c2, epsilon;

  HET_HOST_DEVICE void operator()(float g, float* value, float* s, float* dv, float* a) const {
    constexpr int kV = kSlots - 1;
    const float v_term = c2 * (g * g);
    float m = g;
    if constexpr (kM) {
      const float m_term = c1 * g;
      m = s[0] = b1 * s[0] + m_term;
      a[0] = b1 * a[0] + m_term;
    }
    s[kV] = b2 * s[kV] + v_term;
    const float change = alpha * m / (std::sqrt(s[kV]) + epsilon);
    *value -= change;
    *dv -= change;
    a[kV] = b2 * a[kV] + v_term;
  }
};

// z and n of FTRL. The value follows from them: FtrlValue.
struct Ftrl {
  static constexpr int kSlots = 2;
  float inverse_lr, two_shrinkage;

  HET_HOST_DEVICE void operator()(float g, float* value, float* s, float*, float* a) const {
    const float square = g * g, n_old = s[1], n_new = n_old + square;
    const float sigma = (std::sqrt(n_new) - std::sqrt(n_old)) * inverse_lr;
    const float change = g + (two_shrinkage - sigma) * *value;
    s[0] += change;
    s[1] = n_new;
    a[0] += change;
    a[1] += square;
  }
};

struct FtrlValue {
  float inverse_lr, l1, beta, two_l2;

  HET_HOST_DEVICE float Denominator(float n) const { return (beta + std::sqrt(n)) * inverse_lr + two_l2; }
  HET_HOST_DEVICE float operator()(float z, float denominator) const {
    const float low = z < -l1 ? -l1 : z;
    return ((l1 < low ? l1 : low) - z) / denominator;
  }
};

}  // namespace het::formulas
