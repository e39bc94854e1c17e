// A block of floats as halves or integers with one scale: shared by packing (row_format.cc) and rounding
// (row_rounding.cc), so that a rounded row packs without a loss.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "het_tf/core/base/half.h"
#include "het_tf/core/row/row_format.h"

#if defined(__F16C__) && defined(__AVX__)
#include <immintrin.h>
#define HET_VECTOR_HALVES 1
#endif

namespace het::blocks {

constexpr uint8_t kFloats = 255;
constexpr uint32_t kInfinity = 0x7f800000;

// 2^(byte - 127), and one over it: both are normal numbers for every byte that is a scale.
inline float Unit(uint8_t byte) { return FloatFromBits(static_cast<uint32_t>(byte) << 23); }
inline float Inverse(uint8_t byte) { return FloatFromBits(static_cast<uint32_t>(254 - byte) << 23); }

// The bits of the largest magnitude; those of a NaN are above infinity's.
inline uint32_t LargestBits(const float* x, size_t n) {
  uint32_t largest = 0;
  for (size_t i = 0; i < n; ++i) largest = std::max(largest, FloatBits(x[i]) & 0x7fffffffu);
  return largest;
}

inline uint8_t ScaleByte(uint32_t largest, uint32_t top_exponent) {
  if (largest >= kInfinity) return kFloats;
  const uint32_t exponent = largest >> 23;
  return static_cast<uint8_t>(exponent > top_exponent ? exponent - top_exponent : 1);
}

// The largest, once rounded, has exponent 14: room for one that is rounded up, and as much as can be below.
inline uint8_t HalfByte(uint32_t largest, bool down) {
  return ScaleByte(down ? largest : largest + 0xfff + ((largest >> 13) & 1), 14);
}

// For integers of kBits bits, a block's largest is in [2^(bits - 2), 2^(bits - 1) - 0.5).
template <int kBits>
uint8_t IntegerByte(uint32_t largest) {
  constexpr uint32_t kTop = kBits - 2;
  constexpr uint32_t kPast = 0x7fffff & ~(0x3fffffu >> kTop);  // the mantissa of 2^(bits - 1) - 0.5
  return ScaleByte((largest & 0x7fffff) >= kPast ? (largest | 0x7fffff) + 1 : largest, kTop);
}

template <bool kDown>
void ToHalves(const float* x, size_t n, float inverse, uint8_t* out) {
  size_t i = 0;
#if HET_VECTOR_HALVES
  constexpr int kMode = kDown ? _MM_FROUND_TO_ZERO : _MM_FROUND_TO_NEAREST_INT;
  const __m256 scale = _mm256_set1_ps(inverse);
  for (; i + 8 <= n; i += 8) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_mul_ps(_mm256_loadu_ps(x + i), scale), kMode);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * i), halves);
  }
#endif
  for (; i < n; ++i) {
    const uint16_t half = kDown ? ToHalfDown(x[i] * inverse) : ToHalf(x[i] * inverse);
    std::memcpy(out + 2 * i, &half, sizeof half);
  }
}

inline void FromHalves(const uint8_t* in, size_t n, float unit, float* out) {
  size_t i = 0;
#if HET_VECTOR_HALVES
  const __m256 scale = _mm256_set1_ps(unit);
  for (; i + 8 <= n; i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 2 * i));
    _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_cvtph_ps(halves), scale));
  }
#endif
  for (; i < n; ++i) {
    uint16_t half;
    std::memcpy(&half, in + 2 * i, sizeof half);
    out[i] = FromHalf(half) * unit;
  }
}

// |x| below 2^22, rounded to an integer, ties to even. As one expression of additions it becomes SIMD code
// for any CPU.
inline float Nearest(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

template <int kBits>
constexpr size_t IntegerBytes(size_t n) {
  return (n * kBits + 7) / 8;
}

template <int kBits>
void ToIntegers(const float* x, size_t n, float inverse, uint8_t* out) {
  const auto integer = [&](size_t i) {
    return static_cast<uint8_t>(static_cast<int32_t>(Nearest(x[i] * inverse)));
  };
  if constexpr (kBits == 8) {
    for (size_t i = 0; i < n; ++i) out[i] = integer(i);
  } else {
    for (size_t i = 0; i + 1 < n; i += 2)
      out[i / 2] = static_cast<uint8_t>((integer(i) & 15) | integer(i + 1) << 4);
    if (n % 2 != 0) out[n / 2] = integer(n - 1) & 15;
  }
}

template <int kBits>
void FromIntegers(const uint8_t* in, size_t n, float unit, float* out) {
  for (size_t i = 0; i < n; ++i) {
    const int shift = kBits == 8 ? 0 : i % 2 == 0 ? 4 : 0;
    const uint8_t byte = kBits == 8 ? in[i] : static_cast<uint8_t>(in[i / 2] << shift);
    out[i] = static_cast<float>(static_cast<int8_t>(byte) >> (8 - kBits)) * unit;
  }
}

// Small enough for the stack; blocks are processed in such pieces if the other side's floats are needed.
constexpr size_t kPiece = 64;

// --- floats after the last block

inline bool RoundsSingles(RowFormat format) {
  return format == RowFormat::kInt8 || format == RowFormat::kInt4;
}

// The upper half, rounded to nearest or towards zero; the float itself if it is not finite, or would not be.
inline float RoundSingle(float x, bool down) {
  const uint32_t bits = FloatBits(x);
  const uint32_t half = down ? bits : bits + 0x7fff + (bits >> 16 & 1);
  if ((bits & 0x7f800000) == 0x7f800000 || (half & 0x7f800000) == 0x7f800000) return x;
  return FloatFromBits(half & 0xffff0000);
}

}  // namespace het::blocks
