#include "het_tf/core/row/row_format.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "het_tf/core/base/half.h"
#include "het_tf/core/base/names.h"

#if defined(__F16C__) && defined(__AVX__)
#include <immintrin.h>
#define HET_VECTOR_HALVES 1
#endif

namespace het {
namespace {

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

uint8_t* PutFloats(const float* x, size_t n, uint8_t* out) {
  *out = kFloats;
  std::memcpy(out + 1, x, n * sizeof(float));
  return out + 1 + n * sizeof(float);
}

// --- 16-bit floats

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

// Writes a block, and returns its end, as the functions below do.
uint8_t* PackHalves(const float* x, size_t n, bool down, uint8_t* out) {
  // The largest, once rounded, has exponent 14: room for one that is rounded up, and as much as can be below.
  const uint32_t largest = LargestBits(x, n);
  const uint8_t byte = ScaleByte(down ? largest : largest + 0xfff + ((largest >> 13) & 1), 14);
  if (byte == kFloats) return PutFloats(x, n, out);
  *out = byte;
  down ? ToHalves<true>(x, n, Inverse(byte), out + 1) : ToHalves<false>(x, n, Inverse(byte), out + 1);
  return out + 1 + 2 * n;
}

// --- integers of kBits bits

// |x| below 2^22, rounded to an integer, ties to even. As one expression of additions it becomes SIMD code
// for any CPU.
float Nearest(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

// Mixes the bits of x, by 32-bit operations that become SIMD code (the finalizer of MurmurHash3).
uint32_t Mix32(uint32_t x) {
  x = (x ^ x >> 16) * 0x85ebca6bu;
  x = (x ^ x >> 13) * 0xc2b2ae35u;
  return x ^ x >> 16;
}

template <int kBits>
constexpr size_t IntegerBytes(size_t n) {
  return (n * kBits + 7) / 8;
}

// The scale of a block whose largest is in [2^(bits - 2), 2^(bits - 1) - 0.5) then; past that mantissa the
// next one.
template <int kBits>
uint8_t IntegerByte(uint32_t largest, uint32_t past) {
  return ScaleByte((largest & 0x7fffff) >= past ? (largest | 0x7fffff) + 1 : largest, kBits - 2);
}

// whole(i): the integer of element i.
template <int kBits, typename Whole>
void PutIntegers(size_t n, Whole whole, uint8_t* out) {
  const auto integer = [&](size_t i) { return static_cast<uint8_t>(static_cast<int32_t>(whole(i))); };
  if constexpr (kBits == 8) {
    for (size_t i = 0; i < n; ++i) out[i] = integer(i);
  } else {
    for (size_t i = 0; i + 1 < n; i += 2)
      out[i / 2] = static_cast<uint8_t>((integer(i) & 15) | integer(i + 1) << 4);
    if (n % 2 != 0) out[n / 2] = integer(n - 1) & 15;
  }
}

template <int kBits>
uint8_t* PackIntegers(const float* x, size_t n, uint64_t dither, uint8_t* out) {
  constexpr uint32_t kTop = kBits - 2;
  constexpr uint32_t kPast = 0x7fffff & ~(0x3fffffu >> kTop);  // the mantissa of 2^(bits - 1) - 0.5
  // The largest integer's: one more would not fit.
  constexpr uint32_t kPastWhole = (((1u << (kBits - 1)) - 1 - (1u << kTop)) << (23 - kTop)) + 1;
  const uint32_t largest = LargestBits(x, n);
  const uint8_t dithered = dither == 0 ? kFloats : IntegerByte<kBits>(largest, kPastWhole);
  *out = dithered != kFloats ? dithered : IntegerByte<kBits>(largest, kPast);
  if (*out == kFloats) return PutFloats(x, n, out);
  const float inverse = Inverse(*out);
  if (dithered == kFloats) {
    PutIntegers<kBits>(
        n, [=](size_t i) { return Nearest(x[i] * inverse); }, out + 1);
  } else {
    // Rounds up with a probability equal to the fraction above the integer below.
    const auto seed = static_cast<uint32_t>(dither >> 32);
    const auto whole = [=](size_t i) {
      const uint32_t bits = Mix32(seed + static_cast<uint32_t>(i) * static_cast<uint32_t>(dither | 1));
      // 16 bits: the sum with an integer of the block's type is exact, so that integers stay as they are.
      const float chance = static_cast<float>(static_cast<int32_t>(bits >> 16)) * 0x1p-16f;
      return std::floor(x[i] * inverse + chance);
    };
    PutIntegers<kBits>(n, whole, out + 1);
  }
  return out + 1 + IntegerBytes<kBits>(n);
}

template <int kBits>
void FromIntegers(const uint8_t* in, size_t n, float unit, float* out) {
  for (size_t i = 0; i < n; ++i) {
    const int shift = kBits == 8 ? 0 : i % 2 == 0 ? 4 : 0;
    const uint8_t byte = kBits == 8 ? in[i] : static_cast<uint8_t>(in[i / 2] << shift);
    out[i] = static_cast<float>(static_cast<int8_t>(byte) >> (8 - kBits)) * unit;
  }
}

// --- floats after the last block

constexpr uint16_t kWholeFloat = 0xffff;  // four bytes follow; a NaN, which is never an upper half

bool RoundsSingles(RowFormat format) { return format == RowFormat::kInt8 || format == RowFormat::kInt4; }

// The upper half, rounded to nearest or towards zero; the float itself if it is not finite, or would not be.
uint8_t* PackSingle(float x, bool down, uint8_t* out) {
  const uint32_t bits = FloatBits(x);
  const uint32_t rounded = down ? bits : bits + 0x7fff + (bits >> 16 & 1);
  const bool finite = (bits & kInfinity) != kInfinity && (rounded & kInfinity) != kInfinity;
  const bool whole = !finite && ((bits & 0xffff) != 0 || bits >> 16 == kWholeFloat);
  const uint16_t half = whole ? kWholeFloat : static_cast<uint16_t>((finite ? rounded : bits) >> 16);
  std::memcpy(out, &half, sizeof(half));
  if (!whole) return out + sizeof(half);
  std::memcpy(out + sizeof(half), &bits, sizeof(bits));
  return out + sizeof(half) + sizeof(bits);
}

// --- rows

uint8_t* PackRow(const Rounding& rounding, size_t block, size_t floats, const float* row, uint8_t* out) {
  size_t at = 0;
  for (; at + block <= floats; at += block) {
    if (at > 0 || rounding.format == RowFormat::kFloat16) {
      out = PackHalves(row + at, block, at >= rounding.down_from, out);
    } else {
      out = rounding.format == RowFormat::kInt4 ? PackIntegers<4>(row, block, rounding.dither, out)
                                                : PackIntegers<8>(row, block, rounding.dither, out);
    }
  }
  if (RoundsSingles(rounding.format)) {
    for (; at < floats; ++at) out = PackSingle(row[at], at >= rounding.down_from, out);
  } else if (at < floats) {
    std::memcpy(out, row + at, (floats - at) * sizeof(float));
    out += (floats - at) * sizeof(float);
  }
  return out;
}

// Reads a block of elements of kBits bits. Returns false if it is cut off or its byte is invalid.
template <int kBits>
bool UnpackBlock(size_t n, Reader* in, float* out) {
  const uint8_t byte = in->Fixed<uint8_t>();
  if (byte == 0) return false;
  const uint8_t* const bytes = in->Raw(byte == kFloats ? n * sizeof(float) : IntegerBytes<kBits>(n));
  if (bytes == nullptr) return false;
  if (byte == kFloats) {
    std::memcpy(out, bytes, n * sizeof(float));
  } else if constexpr (kBits == 16) {
    FromHalves(bytes, n, Unit(byte), out);
  } else {
    FromIntegers<kBits>(bytes, n, Unit(byte), out);
  }
  return true;
}

// The bytes of a row whose first block has `first` bytes, the others `other` an element, and single floats
// `single` each.
size_t RowBytes(size_t block, size_t floats, size_t first, size_t other, size_t single) {
  const size_t blocks = floats / block;
  const size_t of_blocks = blocks == 0 ? 0 : blocks + first + (blocks - 1) * block * other;
  return of_blocks + floats % block * single;
}

constexpr std::array kNames = {"float32", "float16", "int8", "int4"};

}  // namespace

const char* RowFormatName(RowFormat format) { return kNames[static_cast<size_t>(format)]; }

Result<RowFormat> ParseRowFormat(const std::string& name) {
  return ParseName<RowFormat>("wire", kNames, name);
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

void PackRows(const Rounding& rounding, size_t block, size_t floats, const float* const* rows, size_t n,
              Writer* out) {
  const size_t most = n * MostRowBytes(rounding.format, block, floats);
  uint8_t* const begin = out->Append(most);
  uint8_t* at = begin;
  for (size_t i = 0; i < n; ++i) {
    if (rounding.format != RowFormat::kFloat32) {
      at = PackRow(rounding, block, floats, rows[i], at);
    } else if (most > 0) {  // without floats the pointer may be null
      std::memcpy(at, rows[i], floats * sizeof(float));
      at += floats * sizeof(float);
    }
  }
  out->TakeBack(most - static_cast<size_t>(at - begin));
}

bool UnpackRow(RowFormat format, size_t block, size_t floats, Reader* in, float* row) {
  size_t at = 0;
  for (; format != RowFormat::kFloat32 && at + block <= floats; at += block) {
    const auto unpack = at > 0 || format == RowFormat::kFloat16 ? &UnpackBlock<16>
                        : format == RowFormat::kInt4            ? &UnpackBlock<4>
                                                                : &UnpackBlock<8>;
    if (!unpack(block, in, row + at)) return false;
  }
  if (RoundsSingles(format)) {
    for (; at < floats; ++at) {
      const auto half = in->Fixed<uint16_t>();
      row[at] = FloatFromBits(half == kWholeFloat ? in->Fixed<uint32_t>() : uint32_t{half} << 16);
    }
    return in->ok();
  }
  const uint8_t* const single = in->Raw((floats - at) * sizeof(float));
  if (single != nullptr && at < floats) std::memcpy(row + at, single, (floats - at) * sizeof(float));
  return single != nullptr;
}

bool UnpackRows(RowFormat format, size_t block, size_t floats, size_t n, Reader* in, Vector<float>* rows) {
  if (format != RowFormat::kFloat32 && block == 0) return false;
  const size_t least = LeastRowBytes(format, block, floats);
  if (!in->ok() || (least != 0 && n > in->left() / least)) return false;
  rows->resize(n * floats);
  if (format == RowFormat::kFloat32) return UnpackRow(format, 0, rows->size(), in, rows->data());
  for (size_t i = 0; i < n; ++i) {
    if (!UnpackRow(format, block, floats, in, rows->data() + i * floats)) return false;
  }
  return true;
}

}  // namespace het
