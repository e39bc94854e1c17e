// V floats of a row that one lane processes together: 4 is one access of 16 bytes, 1 fits every dim.
#pragma once

#include "het_tf/kernels/cuda/dev_ptr.h"

namespace het::dev {

template <int V>
struct alignas(V * sizeof(float)) Pack {
  float at[V];
};

template <int V>
HET_DEV Pack<V> Load(const float* from) {
  return *reinterpret_cast<const Pack<V>*>(from);
}
// Returns zeros if `from` is null.
template <int V>
HET_DEV Pack<V> LoadOrZero(const float* from, uint64_t i) {
  if (from != nullptr) return Load<V>(from + i);
  Pack<V> zeros;
  for (int k = 0; k < V; ++k) zeros.at[k] = 0.0f;
  return zeros;
}
template <int V>
HET_DEV void Store(float* to, const Pack<V>& pack) {
  *reinterpret_cast<Pack<V>*>(to) = pack;
}

// Calls f(i) for i = 0, V, 2V, ... below n, a multiple of V.
template <int V, typename Tile, typename F>
HET_DEV void ForPacks(const Tile& tile, uint64_t n, F f) {
  tile.ForEach(n / V, [&](uint64_t i) { f(i * V); });
}

}  // namespace het::dev
