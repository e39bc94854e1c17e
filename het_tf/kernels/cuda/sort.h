// Sorts arrays in device memory to others in scratch memory, by CUB or <algorithm>. It allocates, so call it
// before any row changes.
#pragma once

#include "het_tf/kernels/cuda/context.h"

namespace het::dev {

struct Sorted {
  Dev<uint64_t> keys;
  Dev<uint32_t> values;
};
// Stable and ascending, by the lowest `bits` bits of the keys.
Sorted SortPairs(Context& context, Dev<const uint64_t> keys, Dev<const uint32_t> values, uint64_t n,
                 int bits = 64);

}  // namespace het::dev
