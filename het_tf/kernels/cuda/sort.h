// Sorts arrays in device memory, by CUB or <algorithm>. It allocates scratch memory, so call it before any
// row changes.
#pragma once

#include "het_tf/kernels/cuda/context.h"

namespace het::dev {

// Stable and ascending, by the lowest `bits` bits of the keys. Both arrays change in place, or *keys and
// *values are replaced by arrays in scratch memory.
void SortPairs(Context& context, Dev<uint64_t>* keys, Dev<uint32_t>* values, uint64_t n, int bits = 64);

}  // namespace het::dev
