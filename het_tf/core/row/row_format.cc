#include "het_tf/core/row/row_format.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "het_tf/core/base/half.h"
#include "het_tf/core/base/hash.h"

#if defined(__F16C__) && defined(__AVX__)
#include <immintrin.h>
#define HET_VECTOR_HALVES 1
#endif

namespace het {
namespace {

constexpr uint8_t kLarger = 0;  // in place of integers: a block of the next larger kind
constexpr uint8_t kFloats = 255;
constexpr uint32_t kInfinity = 0x7f800000;

// 2^(byte - 127), and one over it: both are normal numbers for every byte that is a scale.
float Unit(uint8_t byte) { return FloatFromBits(static_cast<uint32_t>(byte) << 23); }
float Inverse(uint8_t byte) { return FloatFromBits(static_cast<uint32_t>(254 - byte) << 23); }

// The bits of the largest magnitude; those of a NaN are above infinity's.
uint32_t LargestBits(const float* x, size_t n) {
  uint32_t largest = 0;
  for (size_t i = 0; i < n; ++i) largest = std::max(largest, FloatBits(x[i]) & 0x7fffffffu);
  return largest;
}

uint8_t ScaleByte(uint32_t largest, uint32_t top_exponent) {
  if (largest >= kInfinity) return kFloats;
  const uint32_t exponent = largest >> 23;
  return static_cast<uint8_t>(exponent > top_exponent ? exponent - top_exponent : 1);
}

// The largest, once rounded, has exponent 14: room for one that is rounded up, and as much as can be below.
uint8_t HalfByte(uint32_t largest, bool down) {
  return ScaleByte(down ? largest : largest + 0xfff + ((largest >> 13) & 1), 14);
}

// Of integers of so many bits, the largest of a block is in [2^(bits - 2), 2^(bits - 1) - 0.5).
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

void FromHalves(const uint8_t* in, size_t n, float unit, float* out) {
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
float Nearest(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

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

// Small enough for the stack; blocks are gone through in such pieces where the other side's floats are
// needed.
constexpr size_t kPiece = 64;

bool HalvesAre(const uint8_t* halves, size_t n, float unit, const float* x) {
  float back[kPiece];
  for (size_t i = 0; i < n; i += kPiece) {
    const size_t piece = std::min(kPiece, n - i);
    FromHalves(halves + 2 * i, piece, unit, back);
    if (std::memcmp(back, x + i, piece * sizeof(float)) != 0) return false;
  }
  return true;
}

template <int kBits>
bool IntegersAre(const uint8_t* integers, size_t n, float unit, const float* x) {
  float back[kPiece];
  for (size_t i = 0; i < n; i += kPiece) {
    const size_t piece = std::min(kPiece, n - i);
    FromIntegers<kBits>(integers + IntegerBytes<kBits>(i), piece, unit, back);
    if (std::memcmp(back, x + i, piece * sizeof(float)) != 0) return false;
  }
  return true;
}

uint8_t* PutFloats(const float* x, size_t n, uint8_t* out) {
  *out = kFloats;
  std::memcpy(out + 1, x, n * sizeof(float));
  return out + 1 + n * sizeof(float);
}

// Halves if they lose nothing, or if something may be lost; else null, and what stands at `out` is void.
// Writes 1 + 2 * n bytes at the most.
uint8_t* TryHalves(const float* x, size_t n, bool exact, uint8_t* out) {
  const uint8_t byte = HalfByte(LargestBits(x, n), /*down=*/false);
  if (byte == kFloats) return nullptr;
  *out = byte;
  ToHalves<false>(x, n, Inverse(byte), out + 1);
  if (exact && !HalvesAre(out + 1, n, Unit(byte), x)) return nullptr;
  return out + 1 + 2 * n;
}

// Writes a block and returns its end. `exact`: as small as it can be without a loss; else rounded.
uint8_t* PackHalves(const float* x, size_t n, bool exact, uint8_t* out) {
  uint8_t* const end = TryHalves(x, n, exact, out);
  return end != nullptr ? end : PutFloats(x, n, out);
}

// Integers of so many bits, if they lose nothing or something may be lost; else the next larger kind. Null:
// floats are needed.
template <int kBits>
uint8_t* TryIntegers(const float* x, size_t n, bool exact, uint8_t* out) {
  const uint8_t byte = IntegerByte<kBits>(LargestBits(x, n));
  if (byte == kFloats) return nullptr;
  *out = byte;
  ToIntegers<kBits>(x, n, Inverse(byte), out + 1);
  if (!exact || IntegersAre<kBits>(out + 1, n, Unit(byte), x)) return out + 1 + IntegerBytes<kBits>(n);
  *out = kLarger;
  return kBits == 4 ? TryIntegers<8>(x, n, true, out + 1) : TryHalves(x, n, true, out + 1);
}

template <int kBits>
uint8_t* PackIntegers(const float* x, size_t n, bool exact, uint8_t* out) {
  uint8_t* const end = TryIntegers<kBits>(x, n, exact, out);
  return end != nullptr ? end : PutFloats(x, n, out);
}

// --- single floats

bool RoundsSingles(RowFormat format) { return format == RowFormat::kInt8 || format == RowFormat::kInt4; }

constexpr uint16_t kWholeFloat = 0xffff;  // four bytes follow; a NaN, which no upper half is

uint32_t BitsOf(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}

// Its upper half, to the nearest or towards zero; the float itself where it is not finite, or would not be.
float RoundSingle(float x, bool down) {
  const uint32_t bits = BitsOf(x);
  const uint32_t half = down ? bits : bits + 0x7fff + (bits >> 16 & 1);
  if ((bits & 0x7f800000) == 0x7f800000 || (half & 0x7f800000) == 0x7f800000) return x;
  const uint32_t rounded = half & 0xffff0000;
  std::memcpy(&x, &rounded, sizeof(x));
  return x;
}

uint8_t* PackSingle(float x, bool exact, uint8_t* out) {
  const uint32_t bits = BitsOf(exact ? x : RoundSingle(x, /*down=*/false));
  const bool whole = (bits & 0xffff) != 0 || bits >> 16 == kWholeFloat;
  const uint16_t half = whole ? kWholeFloat : static_cast<uint16_t>(bits >> 16);
  std::memcpy(out, &half, sizeof(half));
  if (!whole) return out + sizeof(half);
  std::memcpy(out + sizeof(half), &bits, sizeof(bits));
  return out + sizeof(half) + sizeof(bits);
}

bool UnpackSingle(Reader* in, float* x) {
  const auto half = in->Fixed<uint16_t>();
  const uint32_t bits = half == kWholeFloat ? in->Fixed<uint32_t>() : uint32_t{half} << 16;
  std::memcpy(x, &bits, sizeof(bits));
  return in->ok();
}

uint8_t* PackRow(RowFormat format, size_t block, size_t floats, const float* row, bool exact, uint8_t* out) {
  size_t at = 0;
  for (; at + block <= floats; at += block) {
    if (at > 0 || format == RowFormat::kFloat16) {
      out = PackHalves(row + at, block, exact, out);
    } else {
      out = format == RowFormat::kInt4 ? PackIntegers<4>(row, block, exact, out)
                                       : PackIntegers<8>(row, block, exact, out);
    }
  }
  if (!RoundsSingles(format)) {
    if (at < floats) std::memcpy(out, row + at, (floats - at) * sizeof(float));
    return out + (floats - at) * sizeof(float);
  }
  for (; at < floats; ++at) out = PackSingle(row[at], exact, out);
  return out;
}

// Reads a block of elements of so many bits. False: it is not there, or its byte means nothing. kInstead: in
// place of smaller ones, where floats would not stand.
template <int kBits, bool kInstead = false>
bool UnpackBlock(size_t n, Reader* in, float* out) {
  const uint8_t byte = in->Fixed<uint8_t>();
  if (byte == kFloats) {
    if (kInstead) return false;
    const uint8_t* floats = in->Raw(n * sizeof(float));
    if (floats != nullptr) std::memcpy(out, floats, n * sizeof(float));
    return floats != nullptr;
  }
  if (byte == kLarger) {
    if constexpr (kBits == 16) return false;
    if constexpr (kBits < 16) return UnpackBlock<2 * kBits, true>(n, in, out);
  }
  const uint8_t* elements = in->Raw(kBits == 16 ? 2 * n : IntegerBytes<kBits>(n));
  if (elements == nullptr) return false;
  if constexpr (kBits == 16) {
    FromHalves(elements, n, Unit(byte), out);
  } else {
    FromIntegers<kBits>(elements, n, Unit(byte), out);
  }
  return true;
}

void RoundHalves(const float* x, size_t n, bool down, float* out) {
  const uint8_t byte = HalfByte(LargestBits(x, n), down);
  if (byte == kFloats) {
    std::copy_n(x, n, out);
    return;
  }
  uint8_t halves[2 * kPiece];
  for (size_t i = 0; i < n; i += kPiece) {
    const size_t piece = std::min(kPiece, n - i);
    down ? ToHalves<true>(x + i, piece, Inverse(byte), halves)
         : ToHalves<false>(x + i, piece, Inverse(byte), halves);
    FromHalves(halves, piece, Unit(byte), out + i);
  }
}

template <int kBits>
void RoundIntegers(const float* x, size_t n, float* out) {
  const uint8_t byte = IntegerByte<kBits>(LargestBits(x, n));
  if (byte == kFloats) {
    std::copy_n(x, n, out);
    return;
  }
  uint8_t integers[kPiece];
  for (size_t i = 0; i < n; i += kPiece) {
    const size_t piece = std::min(kPiece, n - i);
    ToIntegers<kBits>(x + i, piece, Inverse(byte), integers);
    FromIntegers<kBits>(integers, piece, Unit(byte), out + i);
  }
}

// Well mixed bits of x, by 32-bit operations that become SIMD code (the finalizer of MurmurHash3).
uint32_t Mix32(uint32_t x) {
  x = (x ^ x >> 16) * 0x85ebca6bu;
  x = (x ^ x >> 13) * 0xc2b2ae35u;
  return x ^ x >> 16;
}

// Up with the probability of what is above the integer below. The scale leaves room for that.
template <int kBits>
void DitherIntegers(const float* x, size_t n, uint64_t random, float* out) {
  constexpr int kShift = kBits - 2;
  constexpr uint32_t kMost = ((1u << (kBits - 1)) - 1 - (1u << kShift)) << (23 - kShift);  // of the mantissa
  const uint32_t largest = LargestBits(x, n);
  const uint8_t byte = ScaleByte((largest & 0x7fffff) > kMost ? (largest | 0x7fffff) + 1 : largest, kShift);
  if (byte == kFloats) {
    std::copy_n(x, n, out);
    return;
  }
  const float inverse = Inverse(byte), unit = Unit(byte);
  const auto seed = static_cast<uint32_t>(random >> 32);
  for (size_t i = 0; i < n; ++i) {
    const uint32_t bits = Mix32(seed + static_cast<uint32_t>(i) * static_cast<uint32_t>(random | 1));
    const float chance = static_cast<float>(static_cast<int32_t>(bits >> 8)) * 0x1p-24f;
    out[i] = std::floor(x[i] * inverse + chance) * unit;
  }
}

// Rounds the block of values.
template <int kBits>
void RoundValues(uint64_t dither, const float* x, size_t n, float* out) {
  dither != 0 ? DitherIntegers<kBits>(x, n, dither, out) : RoundIntegers<kBits>(x, n, out);
}

// The bytes of a row whose first block has `first` bytes, its others `other` an element, and single floats
// `single` each.
size_t RowBytes(size_t block, size_t floats, size_t first, size_t other, size_t single) {
  const size_t blocks = floats / block;
  const size_t of_blocks = blocks == 0 ? 0 : blocks + first + (blocks - 1) * block * other;
  return of_blocks + floats % block * single;
}

}  // namespace

const char* RowFormatName(RowFormat format) {
  switch (format) {
    case RowFormat::kFloat32:
      return "float32";
    case RowFormat::kFloat16:
      return "float16";
    case RowFormat::kInt8:
      return "int8";
    case RowFormat::kInt4:
      return "int4";
  }
  return "unknown";
}

Result<RowFormat> ParseRowFormat(const std::string& name) {
  for (uint8_t format = 0; IsRowFormat(format); ++format) {
    if (name == RowFormatName(static_cast<RowFormat>(format))) return static_cast<RowFormat>(format);
  }
  return InvalidArgument("wire is '" + name + "'; it must be 'float32', 'float16', 'int8' or 'int4'");
}

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
  if (RoundsSingles(rounding.format)) {
    for (; at < floats; ++at) out[at] = RoundSingle(row[at], at >= rounding.down_from);
  } else if (out != row) {
    std::copy_n(row + at, floats - at, out + at);
  }
}

size_t MostRowBytes(RowFormat format, size_t block, size_t floats) {
  if (format == RowFormat::kFloat32 || block == 0) return floats * sizeof(float);
  return RowBytes(block, floats, block * sizeof(float), sizeof(float),
                  RoundsSingles(format) ? sizeof(uint16_t) + sizeof(float) : sizeof(float));
}

size_t LeastRowBytes(RowFormat format, size_t block, size_t floats) {
  if (format == RowFormat::kFloat32 || block == 0) return floats * sizeof(float);
  const size_t bits = format == RowFormat::kInt4 ? 4 : format == RowFormat::kInt8 ? 8 : 16;
  return RowBytes(block, floats, (block * bits + 7) / 8, 2,
                  RoundsSingles(format) ? sizeof(uint16_t) : sizeof(float));
}

void PackRows(RowFormat format, size_t block, size_t floats, const float* rows, size_t n, Writer* out) {
  if (format == RowFormat::kFloat32) return out->Raw(rows, n * floats * sizeof(float));
  const size_t most = n * MostRowBytes(format, block, floats);
  uint8_t* const begin = out->Append(most);
  uint8_t* at = begin;
  for (size_t i = 0; i < n; ++i) at = PackRow(format, block, floats, rows + i * floats, true, at);
  out->TakeBack(most - static_cast<size_t>(at - begin));
}

void PackRounded(RowFormat format, size_t block, size_t floats, const float* const* rows, size_t n,
                 Writer* out) {
  const size_t most = n * MostRowBytes(format, block, floats);
  uint8_t* const begin = out->Append(most);
  uint8_t* at = begin;
  for (size_t i = 0; i < n; ++i) {
    if (format != RowFormat::kFloat32) {
      at = PackRow(format, block, floats, rows[i], false, at);
    } else if (most > 0) {  // no floats: null, perhaps
      std::memcpy(at, rows[i], floats * sizeof(float));
      at += floats * sizeof(float);
    }
  }
  out->TakeBack(most - static_cast<size_t>(at - begin));
}

bool UnpackRows(RowFormat format, size_t block, size_t floats, size_t n, Reader* in, Vector<float>* rows) {
  if (format != RowFormat::kFloat32 && block == 0) return false;
  const size_t least = LeastRowBytes(format, block, floats);
  if (!in->ok() || (least != 0 && n > in->left() / least)) return false;
  rows->resize(n * floats);
  if (format == RowFormat::kFloat32) {
    const uint8_t* bytes = in->Raw(rows->size() * sizeof(float));
    if (!rows->empty()) std::memcpy(rows->data(), bytes, rows->size() * sizeof(float));
    return true;
  }
  for (size_t i = 0; i < n; ++i) {
    float* const row = rows->data() + i * floats;
    size_t at = 0;
    for (; at + block <= floats; at += block) {
      const auto unpack = at > 0 || format == RowFormat::kFloat16 ? &UnpackBlock<16>
                          : format == RowFormat::kInt4            ? &UnpackBlock<4>
                                                                  : &UnpackBlock<8>;
      if (!unpack(block, in, row + at)) return false;
    }
    if (RoundsSingles(format)) {
      for (; at < floats; ++at) {
        if (!UnpackSingle(in, row + at)) return false;
      }
    } else {
      const uint8_t* single = in->Raw((floats - at) * sizeof(float));
      if (single == nullptr) return false;
      if (at < floats) std::memcpy(row + at, single, (floats - at) * sizeof(float));
    }
  }
  return true;
}

}  // namespace het
