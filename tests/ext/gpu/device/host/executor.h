// tile.h on the host: a tile is one thread, its lanes are loops. See tile.h.
#pragma once

#include <cstring>

#include "het_tf/kernels/cuda/context.h"
#include "het_tf/kernels/cuda/dev_ptr.h"
#include "het_tf/kernels/cuda/pack.h"
#include "tests/ext/gpu/device/host/streams.h"

namespace het::dev {

template <typename T>
inline T AtomicLoad(const T* p) {
  T value;
  __atomic_load(p, &value, __ATOMIC_RELAXED);
  return value;
}
inline uint32_t OldLoad(const uint32_t* p) { return AtomicLoad(p); }
template <typename T>
inline void AtomicStore(T* p, T value) {
  __atomic_store(p, &value, __ATOMIC_RELAXED);
}
template <typename T>
inline T AtomicAdd(T* p, T value) {
  return __atomic_fetch_add(p, value, __ATOMIC_RELAXED);
}
template <typename T>
inline T AtomicExchange(T* p, T value) {
  return __atomic_exchange_n(p, value, __ATOMIC_RELAXED);
}
template <typename T>
inline T AtomicCas(T* p, T expected, T value) {
  __atomic_compare_exchange_n(p, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
template <typename T>
inline T AtomicMax(T* p, T value) {
  T old = AtomicLoad(p);
  while (old < value &&
         !__atomic_compare_exchange_n(p, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}

template <int V>
inline Pack<V> LoadFresh(const float* from) {
  Pack<V> pack;
  for (int k = 0; k < V; ++k) pack.at[k] = AtomicLoad(from + k);
  return pack;
}

HET_DEV int CountBits(uint32_t mask) { return __builtin_popcount(mask); }
HET_DEV int LowestBit(uint32_t mask) { return __builtin_ctz(mask); }  // mask != 0

inline uint32_t Match32(const uint8_t* digests, uint8_t digest) {
  uint32_t mask = 0;
  for (uint32_t i = 0; i < 32; ++i) mask |= static_cast<uint32_t>(digests[i] == digest) << i;
  return mask;
}

template <int kWidth>
class Tile {
 public:
  explicit Tile(bool backwards = false) : backwards_(backwards) {}

  // Lanes may come in any order.
  template <typename F>
  void ForEach(uint64_t n, F f) const {
    for (uint64_t i = 0; i < n; ++i) f(backwards_ ? n - 1 - i : i);
  }
  template <typename F>
  void Once(F f) const {
    f();
  }
  template <typename F>
  auto One(F f) const {
    return f();
  }
  template <typename F>
  bool Any(uint64_t n, F f) const {
    bool any = false;
    for (uint64_t i = 0; i < n; ++i) any |= f(i);
    return any;
  }
  void Sync() const {}
  template <typename F>
  float Sum8(F f) const {
    float lane[8];
    for (uint32_t j = 0; j < 8; ++j) lane[j] = f(j);
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
  }

  uint32_t Match32(const uint8_t* digests, uint8_t digest) const { return dev::Match32(digests, digest); }
  template <typename F>
  int ArgMin32(uint32_t mask, F score) const {
    int best = LowestBit(mask);
    auto lowest = score(best);
    for (mask &= mask - 1; mask != 0; mask &= mask - 1) {
      const auto candidate = score(LowestBit(mask));
      if (candidate < lowest) {
        lowest = candidate;
        best = LowestBit(mask);
      }
    }
    return best;
  }

  void Copy(float* to, const float* from, uint64_t n) const { std::memcpy(to, from, n * sizeof(float)); }
  template <typename T>
  struct Lanes {
    T of[32];
    T& operator[](uint32_t lane) { return of[lane]; }
    const T& operator[](uint32_t lane) const { return of[lane]; }
  };
  template <typename F>
  void ForLanes(F f) const {
    static_assert(kWidth == 32);
    ForEach(32, [&](uint64_t lane) { f(static_cast<uint32_t>(lane)); });
  }
  template <typename F>
  uint32_t CountLanes(F f) const {
    static_assert(kWidth == 32);
    uint32_t n = 0;
    for (uint32_t lane = 0; lane < 32; ++lane) n += f(lane) ? 1 : 0;
    return n;
  }
  void CopyRows(float* to, uint32_t n, const float* records, uint64_t stride,
                const Lanes<uint32_t>& rows) const {
    ForLanes([&](uint32_t lane) {
      if (rows[lane] == kNoRow) return;
      if (rows[lane] == kZeros) return Fill(to + uint64_t{lane} * n, 0, n);
      Copy(to + uint64_t{lane} * n, records + rows[lane] * stride, n);
    });
  }
  void Fill(float* to, float value, uint64_t n) const {
    for (uint64_t i = 0; i < n; ++i) to[i] = value;
  }

  bool Last(uint32_t* counter, uint32_t n) const {
    if (__atomic_fetch_add(counter, 1, __ATOMIC_ACQ_REL) != n - 1) return false;
    AtomicStore(counter, 0u);
    return true;
  }

  bool LastOfAll(uint32_t* counter, uint32_t n) const { return Last(counter, n); }

  static uint32_t Append(uint32_t* counter) { return AtomicAdd(counter, 1u); }
  static uint64_t Append(uint64_t* counter) { return AtomicAdd(counter, uint64_t{1}); }

 private:
  bool backwards_;
};

// run(first, step): items first, first + step, ...; on several threads at once with HET_DEV_HOST_THREADS > 1.
void RunOnHostThreads(uint64_t items, const std::function<void(uint64_t first, uint64_t step)>& run);

template <int kWidth, typename Kernel>
void Launch(Context& context, const char* name, uint64_t items, const Kernel& kernel) {
  if (items == 0) return;
  if (streams::LaunchWorks()) {
    streams::Put(context.stream(), 1, [kernel, items] {
      const uint64_t drawn = streams::Draw();
      const uint64_t begin = drawn % items;  // tiles come from here on, or from here back
      const bool backwards = (drawn >> 62 & 1) != 0;
      RunOnHostThreads(items, [&](uint64_t first, uint64_t step) {
        const Tile<kWidth> tile((drawn >> 63) != 0);
        for (uint64_t i = first; i < items; i += step) {
          const uint64_t item = i < items - begin ? i + begin : i - (items - begin);
          kernel(tile, backwards ? items - 1 - item : item);
        }
      });
    });
  }
  context.CheckLaunch(name);
}

}  // namespace het::dev
