// The loop of a tick over the elements of a row, which compilers turn into SIMD code: pointers to a row's
// parts are restrict, because the parts never overlap.
//
// The roots also need -fno-math-errno: a sqrtf that may set errno is not SIMD, and GCC 12 accepts that option
// only on the command line.
#pragma once

#include <cmath>
#include <cstddef>

#include "het_tf/core/row/optimizers/formulas.h"

#define HET_RESTRICT __restrict__
// A formula's parameters then stay in registers.
#define HET_ALWAYS_INLINE inline __attribute__((always_inline))

namespace het {

// With kTrack false the loop neither reads nor writes the update.
template <bool kTrack, typename Formula>
HET_ALWAYS_INLINE void TickElements(const Formula& formula, size_t dim, const float* HET_RESTRICT g,
                                    float* HET_RESTRICT value, float* HET_RESTRICT s0, float* HET_RESTRICT s1,
                                    float* HET_RESTRICT dv, float* HET_RESTRICT a0, float* HET_RESTRICT a1) {
  constexpr int kSlots = Formula::kSlots;
  for (size_t i = 0; i < dim; ++i) {
    float x = value[i], change = 0, s[2] = {}, a[2] = {};
    if constexpr (kSlots > 0) s[0] = s0[i];
    if constexpr (kSlots > 1) s[1] = s1[i];
    if constexpr (kTrack) change = dv[i];
    if constexpr (kTrack && kSlots > 0) a[0] = a0[i];
    if constexpr (kTrack && kSlots > 1) a[1] = a1[i];
    formula(g[i], &x, s, &change, a);
    value[i] = x;
    if constexpr (kSlots > 0) s0[i] = s[0];
    if constexpr (kSlots > 1) s1[i] = s[1];
    if constexpr (kTrack) dv[i] = change;
    if constexpr (kTrack && kSlots > 0) a0[i] = a[0];
    if constexpr (kTrack && kSlots > 1) a1[i] = a[1];
  }
}

// One tick of `row`, and of `update` if it is not null; both have their slots of dim floats behind the value.
template <typename Formula>
HET_ALWAYS_INLINE void TickRow(const Formula& formula, size_t dim, const float* g, float* row,
                               float* update) {
  float *const s0 = row + dim, *const s1 = s0 + dim;
  if (update == nullptr) {
    TickElements<false>(formula, dim, g, row, s0, s1, nullptr, nullptr, nullptr);
  } else {
    TickElements<true>(formula, dim, g, row, s0, s1, update, update + dim, update + 2 * dim);
  }
}

}  // namespace het
