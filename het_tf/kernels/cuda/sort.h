// Sorts and prefix sums of arrays in device memory, by CUB or <algorithm>. The functions allocate scratch
// memory, so call them before any row changes.
#pragma once

#include "het_tf/kernels/cuda/context.h"

namespace het::dev {

// Stable and ascending, by the lowest `bits` bits of the keys. Both arrays change in place, or *keys and
// *values are replaced by arrays in scratch memory.
void SortPairs(Context& context, Dev<uint64_t>* keys, Dev<uint32_t>* values, uint64_t n, int bits = 64);
// sums[i] = values[0] + ... + values[i - 1]; n + 1 sums, so the last is the total. `values` must also have n
// + 1 elements; the last is ignored.
void RunningSums(Context& context, Dev<uint32_t> values, Dev<uint32_t> sums, uint64_t n);

}  // namespace het::dev
