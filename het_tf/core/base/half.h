// 16-bit floats (IEEE 754 binary16), one at a time: equal to the F16C instructions, bit for bit, for numbers.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace het {

inline uint32_t FloatBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float FloatFromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

constexpr uint32_t kInfinity = 0x7f800000;  // its bits

// 2^(byte - 127), and one over it: both are normal numbers for every byte from 1 to 253.
inline float ScaleOf(uint8_t byte) { return FloatFromBits(static_cast<uint32_t>(byte) << 23); }
inline float InverseOf(uint8_t byte) { return FloatFromBits(static_cast<uint32_t>(254 - byte) << 23); }

// |x| below 2^22, rounded to an integer, ties to even. As one expression of additions it becomes SIMD code
// for any CPU.
inline float Nearest(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

// Rounds to nearest, ties to even; values from 65520 become infinity.
inline uint16_t ToHalf(float value) {
  const uint32_t bits = FloatBits(value), magnitude = bits & 0x7fffffff;
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  if (magnitude > 0x7f800000) return sign | 0x7e00;   // NaN
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // rounds to 65536 or more
  if (magnitude < 0x38800000) {  // below the smallest normal number, 2^-14: a multiple of 2^-24
    const float multiple = std::nearbyint(FloatFromBits(magnitude) * 0x1p24f);
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(multiple));
  }
  const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
}

// Rounds a value below 65536 towards zero.
inline uint16_t ToHalfDown(float value) {
  const uint32_t bits = FloatBits(value), magnitude = bits & 0x7fffffff;
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  if (magnitude < 0x38800000) {
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(FloatFromBits(magnitude) * 0x1p24f));
  }
  return static_cast<uint16_t>(sign | ((magnitude >> 13) - (112u << 10)));
}

inline float FromHalf(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = (half >> 10) & 0x1f, fraction = half & 0x3ff;
  if (exponent == 0x1f) return FloatFromBits(sign | 0x7f800000 | (fraction << 13));
  if (exponent == 0) return FloatFromBits(sign | FloatBits(static_cast<float>(fraction) * 0x1p-24f));
  return FloatFromBits(sign | ((exponent + 112) << 23) | (fraction << 13));
}

}  // namespace het
