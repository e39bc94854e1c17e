// tile.h on a GPU: a tile is a part of a warp. See tile.h.
#ifndef HET_TF_KERNELS_CUDA_CUDA_EXECUTOR_CUH_
#define HET_TF_KERNELS_CUDA_CUDA_EXECUTOR_CUH_

#include <cooperative_groups.h>

#include "het_tf/kernels/cuda/context.h"
#include "het_tf/kernels/cuda/dev_ptr.h"
#include "het_tf/kernels/cuda/pack.h"

namespace het::dev {

// CUDA's atomics take unsigned long long where we use uint64_t.
using CudaU64 = unsigned long long;
static_assert(sizeof(CudaU64) == sizeof(uint64_t));

template <typename T>
HET_DEV T AtomicLoad(const T* p) {
  return *const_cast<const volatile T*>(p);
}
template <typename T>
HET_DEV void AtomicStore(T* p, T value) {
  *const_cast<volatile T*>(p) = value;
}
// Loads from the multiprocessor's L1 cache, which has its own stores.
HET_DEV uint32_t OldLoad(const uint32_t* p) { return __ldca(p); }
HET_DEV CudaU64* AsCuda(uint64_t* p) { return reinterpret_cast<CudaU64*>(p); }
HET_DEV uint32_t AtomicAdd(uint32_t* p, uint32_t value) { return atomicAdd(p, value); }
HET_DEV uint64_t AtomicAdd(uint64_t* p, uint64_t value) { return atomicAdd(AsCuda(p), value); }
HET_DEV uint32_t AtomicExchange(uint32_t* p, uint32_t value) { return atomicExch(p, value); }
HET_DEV uint64_t AtomicExchange(uint64_t* p, uint64_t value) { return atomicExch(AsCuda(p), value); }
HET_DEV uint32_t AtomicMax(uint32_t* p, uint32_t value) { return atomicMax(p, value); }
HET_DEV uint32_t AtomicCas(uint32_t* p, uint32_t expected, uint32_t value) {
  return atomicCAS(p, expected, value);
}
HET_DEV uint64_t AtomicCas(uint64_t* p, uint64_t expected, uint64_t value) {
  return atomicCAS(AsCuda(p), expected, value);
}

template <int V>
HET_DEV Pack<V> LoadFresh(const float* from) {
  Pack<V> pack;
  if constexpr (V == 4) {
    const float4 loaded = __ldcg(reinterpret_cast<const float4*>(from));
    pack = {{loaded.x, loaded.y, loaded.z, loaded.w}};
  } else {
    for (int k = 0; k < V; ++k) pack.at[k] = __ldcg(from + k);
  }
  return pack;
}

HET_DEV int CountBits(uint32_t mask) { return __popc(mask); }
HET_DEV int LowestBit(uint32_t mask) { return __ffs(static_cast<int>(mask)) - 1; }  // mask != 0

// 0xff in each equal byte; the multiplication gathers one bit of each in the top four bits.
HET_DEV uint32_t MatchWord(uint32_t word, uint32_t wanted) {
  return ((__vcmpeq4(word, wanted) & 0x08040201u) * 0x01010101u) >> 24;
}
HET_DEV uint32_t MatchWords(const uint4& words, uint32_t wanted) {
  return MatchWord(words.x, wanted) | MatchWord(words.y, wanted) << 4 | MatchWord(words.z, wanted) << 8 |
         MatchWord(words.w, wanted) << 12;
}
HET_DEV uint32_t Match32(const uint8_t* digests, uint8_t digest) {
  const uint4* words = reinterpret_cast<const uint4*>(digests);
  const uint4 low = words[0], high = words[1];
  return MatchWords(low, digest * 0x01010101u) | MatchWords(high, digest * 0x01010101u) << 16;
}

template <int kWidth>
class Tile {
  static_assert(kWidth == 4 || kWidth == 8 || kWidth == 16 || kWidth == 32);

 public:
  __device__ Tile()
      : lanes_(cooperative_groups::tiled_partition<kWidth>(cooperative_groups::this_thread_block())) {}

  template <typename F>
  HET_DEV void ForEach(uint64_t n, F f) const {
    for (uint64_t i = lanes_.thread_rank(); i < n; i += kWidth) f(i);
  }
  template <typename F>
  HET_DEV void Once(F f) const {
    if (lanes_.thread_rank() == 0) f();
  }
  template <typename F>
  HET_DEV auto One(F f) const {
    decltype(f()) value{};
    if (lanes_.thread_rank() == 0) value = f();
    return lanes_.shfl(value, 0);
  }
  template <typename F>
  HET_DEV bool Any(uint64_t n, F f) const {
    bool any = false;
    for (uint64_t i = lanes_.thread_rank(); i < n; i += kWidth) any |= f(i);
    return lanes_.any(any);
  }
  HET_DEV void Sync() const { lanes_.sync(); }
  // Lanes beyond the eighth repeat the first eight; both operands' order gives the same bits.
  template <typename F>
  HET_DEV float Sum8(F f) const {
    const uint32_t lane = lanes_.thread_rank() % 8;
    float sum = f(lane);
    if constexpr (kWidth < 8) {
      sum += f(lane + 4);
    } else {
      sum += lanes_.shfl_xor(sum, 4);
    }
    sum += lanes_.shfl_xor(sum, 2);
    return sum + lanes_.shfl_xor(sum, 1);
  }

  // Each lane compares 32 / kWidth digests, four at a time, and packs the results into bits.
  HET_DEV uint32_t Match32(const uint8_t* digests, uint8_t digest) const {
    constexpr int kWords = 8 / (kWidth < 8 ? kWidth : 8);
    const uint32_t* words = reinterpret_cast<const uint32_t*>(digests);
    const uint32_t wanted = digest * 0x01010101u;
    const int lane = static_cast<int>(lanes_.thread_rank());
    uint32_t mask = 0;
    if (lane * kWords < 8) {
      for (int i = 0; i < kWords; ++i) {
        const int word = lane * kWords + i;
        mask |= MatchWord(words[word], wanted) << (4 * word);
      }
    }
    for (int step = kWidth / 2; step > 0; step /= 2) mask |= lanes_.shfl_xor(mask, step);
    return mask;
  }

  template <typename F>
  HET_DEV int ArgMin32(uint32_t mask, F score) const {
    int best = -1;
    decltype(score(0)) lowest{};
    for (int i = static_cast<int>(lanes_.thread_rank()); i < 32; i += kWidth) {
      if ((mask >> i & 1) == 0) continue;
      const auto candidate = score(i);
      if (best < 0 || candidate < lowest) {
        lowest = candidate;
        best = i;
      }
    }
    for (int step = kWidth / 2; step > 0; step /= 2) {
      const auto other_lowest = lanes_.shfl_xor(lowest, step);
      const int other = lanes_.shfl_xor(best, step);
      if (other < 0) continue;
      if (best < 0 || other_lowest < lowest || (!(lowest < other_lowest) && other < best)) {
        lowest = other_lowest;
        best = other;
      }
    }
    return best;
  }

  HET_DEV void Copy(float* to, const float* from, uint64_t n) const {
    const uint64_t addresses = reinterpret_cast<uint64_t>(to) | reinterpret_cast<uint64_t>(from);
    uint64_t done = 0;
    if ((addresses & 15) == 0) {
      for (uint64_t i = lanes_.thread_rank(); i < n / 4; i += kWidth) {
        reinterpret_cast<float4*>(to)[i] = reinterpret_cast<const float4*>(from)[i];
      }
      done = n / 4 * 4;
    }
    for (uint64_t i = done + lanes_.thread_rank(); i < n; i += kWidth) to[i] = from[i];
  }
  template <typename T>
  struct Lanes {
    T own;
    HET_DEV T& operator[](uint32_t) { return own; }
    HET_DEV const T& operator[](uint32_t) const { return own; }
  };
  template <typename F>
  HET_DEV void ForLanes(F f) const {
    static_assert(kWidth == 32);
    f(static_cast<uint32_t>(lanes_.thread_rank()));
  }
  template <typename F>
  HET_DEV uint32_t CountLanes(F f) const {
    static_assert(kWidth == 32);
    return __popc(lanes_.ballot(f(static_cast<uint32_t>(lanes_.thread_rank()))));
  }

  // Some lanes for each row, and four rows in flight in each lane.
  HET_DEV void CopyRows(float* to, uint32_t n, const float* records, uint64_t stride,
                        const Lanes<uint32_t>& rows) const {
    static_assert(kWidth == 32);
    if (n % 4 == 0 && (reinterpret_cast<uint64_t>(to) & 15) == 0) {
      CopyRowsBy(reinterpret_cast<float4*>(to), n / 4, reinterpret_cast<const float4*>(records), stride / 4,
                 rows.own);
    } else {
      CopyRowsBy(to, n, records, stride, rows.own);
    }
  }

  HET_DEV bool Last(uint32_t* counter, uint32_t n) const {
    return LastBy(counter, n, [](uint32_t* to) { return AtomicAdd(to, 1u); });
  }
  HET_DEV bool LastOfAll(uint32_t* counter, uint32_t n) const {
    return LastBy(counter, n, [](uint32_t* to) { return Append(to); });
  }
  template <typename Add>
  HET_DEV bool LastBy(uint32_t* counter, uint32_t n, Add add) const {
    __threadfence();
    lanes_.sync();
    uint32_t last = 0;
    if (lanes_.thread_rank() == 0 && add(counter) == n - 1) {
      *counter = 0;
      last = 1;
    }
    last = lanes_.shfl(last, 0);
    if (last != 0) __threadfence();
    return last != 0;
  }

  // Uses one atomic for all threads of the warp that arrive together. They must have the same `counter`.
  template <typename T>
  static HET_DEV T Append(T* counter) {
    const auto together = cooperative_groups::coalesced_threads();
    T first{};
    if (together.thread_rank() == 0) first = AtomicAdd(counter, static_cast<T>(together.num_threads()));
    return together.shfl(first, 0) + together.thread_rank();
  }

 private:
  // All lanes of the warp are here.
  template <typename T>
  HET_DEV void CopyRowsBy(T* to, uint32_t n, const T* records, uint64_t stride, uint32_t row) const {
    constexpr uint32_t kInFlight = 4;
    const uint32_t lane = lanes_.thread_rank();
    uint32_t log_lanes = 0;  // of a row
    while (log_lanes < 5 && (1u << log_lanes) < n) ++log_lanes;
    const uint32_t at_once = 32u >> log_lanes, first = lane >> log_lanes;
    for (uint32_t column = lane & ((1u << log_lanes) - 1); __any_sync(~0u, column < n);
         column += 1u << log_lanes) {
      for (uint32_t r = first; r < 32; r += kInFlight * at_once) {
        T values[kInFlight];
        uint32_t from[kInFlight];
#pragma unroll
        for (uint32_t j = 0; j < kInFlight; ++j) {
          const uint32_t of = r + j * at_once;
          from[j] = __shfl_sync(~0u, row, of & 31);
          if (of >= 32 || column >= n) from[j] = kNoRow;
          values[j] = T{};
          if (from[j] < kZeros) values[j] = records[from[j] * stride + column];
        }
#pragma unroll
        for (uint32_t j = 0; j < kInFlight; ++j) {
          if (from[j] != kNoRow)
            __stcs(to + (r + j * at_once) * static_cast<uint64_t>(n) + column, values[j]);
        }
      }
    }
  }

  cooperative_groups::thread_block_tile<kWidth> lanes_;
};

template <int kWidth, typename Kernel>
__global__ void __launch_bounds__(256) RunKernel(const __grid_constant__ Kernel kernel, uint64_t items) {
  const Tile<kWidth> tile;
  const uint64_t tiles = static_cast<uint64_t>(gridDim.x) * (blockDim.x / kWidth);
  const uint64_t first = (static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWidth;
  for (uint64_t item = first; item < items; item += tiles) kernel(tile, item);
}

// The driver loads a kernel's code at its first use, which takes memory, and a launch in the middle of a call
// must not run out of it. So kernels register themselves, and the context loads them all (LoadCode).
bool RegisterKernel(const void* kernel);
namespace {
template <int kWidth, typename Kernel>
struct Registered {
  static const bool done;
};
template <int kWidth, typename Kernel>
const bool Registered<kWidth, Kernel>::done =
    RegisterKernel(reinterpret_cast<const void*>(&RunKernel<kWidth, Kernel>));
}  // namespace

template <int kWidth, typename Kernel>
void Launch(Context& context, const char* name, uint64_t items, const Kernel& kernel) {
  (void)&Registered<kWidth, Kernel>::done;
  if (items == 0) return;
  constexpr uint64_t kThreads = 256;
  constexpr uint64_t kMaxBlocks = uint64_t{1} << 20;
  const uint64_t wanted = (items + kThreads / kWidth - 1) / (kThreads / kWidth);
  const unsigned blocks = static_cast<unsigned>(wanted < kMaxBlocks ? wanted : kMaxBlocks);
  RunKernel<kWidth><<<blocks, kThreads, 0, static_cast<cudaStream_t>(context.stream())>>>(kernel, items);
  context.CheckLaunch(name);
}

}  // namespace het::dev

#endif  // HET_TF_KERNELS_CUDA_CUDA_EXECUTOR_CUH_
