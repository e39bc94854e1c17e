// sort.h on the host.
#include "het_tf/kernels/cuda/sort.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "tests/ext/gpu/device/host/streams.h"

namespace het::dev {
namespace {

// Kernels and fills of CUB's radix sort on a GPU of compute capability 9.0: one block sorts a few items by
// itself; else there are a histogram, its sums, and a pass for each 8 bits, each after a fill.
uint64_t OperationsOfSort(uint64_t n, int bits) {
  constexpr uint64_t kOneBlock = 256 * 9;
  return n <= kOneBlock ? 1 : 2 * (2 + (static_cast<uint64_t>(bits) + 7) / 8);
}

}  // namespace

Sorted SortPairs(Context& context, Dev<const uint64_t> keys, Dev<const uint32_t> values, uint64_t n,
                 int bits) {
  const Sorted to = {context.Scratch<uint64_t>(n), context.Scratch<uint32_t>(n)};
  if (n == 0) return to;
  const uint64_t* k = keys;
  const uint32_t* v = values;
  uint64_t* to_k = to.keys;
  uint32_t* to_v = to.values;
  const uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  streams::Put(context.stream(), OperationsOfSort(n, bits), [=] {
    std::vector<uint64_t> order(n);
    std::iota(order.begin(), order.end(), uint64_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](uint64_t a, uint64_t b) { return (k[a] & mask) < (k[b] & mask); });
    for (uint64_t i = 0; i < n; ++i) {
      to_k[i] = k[order[i]];
      to_v[i] = v[order[i]];
    }
  });
  return to;
}

}  // namespace het::dev
