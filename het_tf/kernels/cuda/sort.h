// Sorting and running sums of arrays in device memory: CUB, or <algorithm>. Scratch memory is taken by the
// function, so it is to be called before anything changes.
#pragma once

#include "het_tf/kernels/cuda/context.h"

namespace het::dev {

// Stable, ascending, by the lowest `bits` bits of the keys. Both arrays change in place, or *keys and *values
// are exchanged for others in scratch memory.
void SortPairs(Context& context, Dev<uint64_t>* keys, Dev<uint32_t>* values, uint64_t n, int bits = 64);
// sums[i] = values[0] + ... + values[i - 1]; n + 1 sums, so the last one is the total. `values` has n + 1
// elements too; what the last one is does not matter.
void RunningSums(Context& context, Dev<uint32_t> values, Dev<uint32_t> sums, uint64_t n);

}  // namespace het::dev
