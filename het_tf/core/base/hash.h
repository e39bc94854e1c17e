// Hashing of keys. Four users share one 64-bit hash, each with its own bits:
//   bits 63..32  the bucket in an index        (key_index.h)
//   bits 31..16  the partition                 (wire/layout.h)
//   bits 15..8   the segment of an index       (segmented_index.h)
//   bits  7..0   the tag in a bucket           (key_index.h)
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

// For functions that GPU kernels also use.
#ifdef __CUDACC__
#define HET_HOST_DEVICE __host__ __device__
#else
#define HET_HOST_DEVICE
#endif

namespace het {

using Key = int64_t;

// The finaliser of MurmurHash3: a bijection, so different keys never share a 64-bit hash.
HET_HOST_DEVICE inline uint64_t Mix64(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  x ^= x >> 33;
  return x;
}

HET_HOST_DEVICE inline uint64_t HashKey(Key key, uint64_t seed) {
  return Mix64(static_cast<uint64_t>(key) ^ seed);
}

// For boost's maps.
struct KeyHash {
  using is_avalanching = void;
  size_t operator()(Key key) const { return HashKey(key, 0); }
};

// FNV-1a and a final mix, for names of tables. It must never change, since it is in messages and files.
inline uint64_t HashName(std::string_view name) {
  uint64_t h = 0xcbf29ce484222325ULL;
  for (unsigned char c : name) h = (h ^ c) * 0x100000001b3ULL;
  return Mix64(h);
}

}  // namespace het
