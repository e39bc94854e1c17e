// Rounds rows to values that their format can represent.
#include <algorithm>
#include <cmath>

#include "het_tf/core/row/row_block.h"

namespace het {
namespace {

void RoundHalves(const float* x, size_t n, bool down, float* out) {
  const uint8_t byte = blocks::HalfByte(blocks::LargestBits(x, n), down);
  if (byte == blocks::kFloats) {
    std::copy_n(x, n, out);
    return;
  }
  uint8_t halves[2 * blocks::kPiece];
  for (size_t i = 0; i < n; i += blocks::kPiece) {
    const size_t piece = std::min(blocks::kPiece, n - i);
    down ? blocks::ToHalves<true>(x + i, piece, blocks::Inverse(byte), halves)
         : blocks::ToHalves<false>(x + i, piece, blocks::Inverse(byte), halves);
    blocks::FromHalves(halves, piece, blocks::Unit(byte), out + i);
  }
}

template <int kBits>
void RoundIntegers(const float* x, size_t n, float* out) {
  const uint8_t byte = blocks::IntegerByte<kBits>(blocks::LargestBits(x, n));
  if (byte == blocks::kFloats) {
    std::copy_n(x, n, out);
    return;
  }
  uint8_t integers[blocks::kPiece];
  for (size_t i = 0; i < n; i += blocks::kPiece) {
    const size_t piece = std::min(blocks::kPiece, n - i);
    blocks::ToIntegers<kBits>(x + i, piece, blocks::Inverse(byte), integers);
    blocks::FromIntegers<kBits>(integers, piece, blocks::Unit(byte), out + i);
  }
}

// Mixes the bits of x, by 32-bit operations that become SIMD code (the finalizer of MurmurHash3).
uint32_t Mix32(uint32_t x) {
  x = (x ^ x >> 16) * 0x85ebca6bu;
  x = (x ^ x >> 13) * 0xc2b2ae35u;
  return x ^ x >> 16;
}

// Rounds up with a probability equal to the fraction above the integer below. The scale leaves room for that.
template <int kBits>
void DitherIntegers(const float* x, size_t n, uint64_t random, float* out) {
  constexpr int kShift = kBits - 2;
  constexpr uint32_t kMost = ((1u << (kBits - 1)) - 1 - (1u << kShift)) << (23 - kShift);  // of the mantissa
  const uint32_t largest = blocks::LargestBits(x, n);
  const uint8_t byte =
      blocks::ScaleByte((largest & 0x7fffff) > kMost ? (largest | 0x7fffff) + 1 : largest, kShift);
  if (byte == blocks::kFloats) {
    std::copy_n(x, n, out);
    return;
  }
  const float inverse = blocks::Inverse(byte), unit = blocks::Unit(byte);
  const auto seed = static_cast<uint32_t>(random >> 32);
  for (size_t i = 0; i < n; ++i) {
    const uint32_t bits = Mix32(seed + static_cast<uint32_t>(i) * static_cast<uint32_t>(random | 1));
    // 16 bits: the sum with an integer of the block's type is exact, so that integers stay as they are.
    const float chance = static_cast<float>(static_cast<int32_t>(bits >> 16)) * 0x1p-16f;
    out[i] = std::floor(x[i] * inverse + chance) * unit;
  }
}

// Rounds the block of values.
template <int kBits>
void RoundValues(uint64_t dither, const float* x, size_t n, float* out) {
  dither != 0 ? DitherIntegers<kBits>(x, n, dither, out) : RoundIntegers<kBits>(x, n, out);
}

}  // namespace

void RoundRow(Rounding rounding, size_t block, size_t floats, const float* row, float* out) {
  size_t at = 0;
  if (rounding.format != RowFormat::kFloat32) {
    for (; at + block <= floats; at += block) {
      if (at == 0 && rounding.format == RowFormat::kInt4) {
        RoundValues<4>(rounding.dither, row, block, out);
      } else if (at == 0 && rounding.format == RowFormat::kInt8) {
        RoundValues<8>(rounding.dither, row, block, out);
      } else {
        RoundHalves(row + at, block, at >= rounding.down_from, out + at);
      }
    }
  }
  if (blocks::RoundsSingles(rounding.format)) {
    for (; at < floats; ++at) out[at] = blocks::RoundSingle(row[at], at >= rounding.down_from);
  } else if (out != row) {
    std::copy_n(row + at, floats - at, out + at);
  }
}

}  // namespace het
