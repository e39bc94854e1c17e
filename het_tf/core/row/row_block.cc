#include "het_tf/core/row/row_block.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "het_tf/core/base/half.h"

#if defined(__F16C__) && defined(__AVX__)
#include <immintrin.h>
#define HET_VECTOR_HALVES 1
#endif

namespace het {
namespace {

constexpr uint8_t kFloats = 255;

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
  down ? ToHalves<true>(x, n, InverseOf(byte), out + 1) : ToHalves<false>(x, n, InverseOf(byte), out + 1);
  return out + 1 + 2 * n;
}

// --- integers of kBits bits

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

// In kInt4 and kInt5 the byte before the first block is the scale less kFewByte, and has kOther before
// integers of the other size: 2 bits in kInt4, 8 in kInt5.
constexpr uint8_t kFewByte = 30;
constexpr uint8_t kMostFewByte = 126;
constexpr uint8_t kOther = 128;

// The scale of a block whose largest is in [2^(bits - 2), 2^(bits - 1) - 0.5) then; past that mantissa the
// next one.
template <int kBits>
uint8_t IntegerByte(uint32_t largest, uint32_t past) {
  const uint8_t byte =
      ScaleByte((largest & 0x7fffff) >= past ? (largest | 0x7fffff) + 1 : largest, kBits - 2);
  return byte;
}

// The same for kInt4 and kInt5.
uint8_t FewByte(uint8_t byte) {
  return byte - kFewByte > kMostFewByte ? kFloats : std::max<uint8_t>(byte, kFewByte + 1);
}

// The same for integers that are rounded to the nearest.
template <int kBits>
uint8_t NearestByte(uint32_t largest) {
  return IntegerByte<kBits>(largest, 0x7fffff & ~(0x3fffffu >> (kBits - 2)));  // 2^(bits - 1) - 0.5
}

// whole(i): the integer of element i. Integers go one behind the other, the first in the lowest bits.
template <int kBits, typename Whole>
void PutIntegers(size_t n, Whole whole, uint8_t* out) {
  const auto integer = [&](size_t i) { return static_cast<uint8_t>(static_cast<int32_t>(whole(i))); };
  if constexpr (kBits == 8) {
    for (size_t i = 0; i < n; ++i) out[i] = integer(i);
  } else {
    constexpr uint64_t kMask = (1 << kBits) - 1;
    for (size_t begin = 0; begin < n; begin += 8, out += kBits) {  // kBits bytes
      const size_t count = std::min<size_t>(8, n - begin);
      uint64_t bits = 0;
      for (size_t i = 0; i < count; ++i) bits |= (integer(begin + i) & kMask) << kBits * i;
      std::memcpy(out, &bits, IntegerBytes<kBits>(count));
    }
  }
}

// `other`: kOther, or 0; kInt8 has neither.
template <int kBits, bool kFew = kBits != 8>
uint8_t* PackIntegers(const float* x, size_t n, uint64_t dither, uint8_t* out, uint8_t other = 0) {
  const auto limited = [](uint8_t byte) { return kFew ? FewByte(byte) : byte; };
  constexpr uint32_t kTop = kBits - 2;
  // The largest integer's: one more would not fit.
  constexpr uint32_t kPastWhole = (((1u << (kBits - 1)) - 1 - (1u << kTop)) << (23 - kTop)) + 1;
  const uint32_t largest = LargestBits(x, n);
  const uint8_t dithered = dither == 0 ? kFloats : limited(IntegerByte<kBits>(largest, kPastWhole));
  const uint8_t byte = dithered != kFloats ? dithered : limited(NearestByte<kBits>(largest));
  if (byte == kFloats) return PutFloats(x, n, out);
  *out = kFew ? (byte - kFewByte) | other : byte;
  const float inverse = InverseOf(byte);
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
  if constexpr (kBits == 8) {
    for (size_t i = 0; i < n; ++i) out[i] = static_cast<float>(static_cast<int8_t>(in[i])) * unit;
  } else {
    for (size_t begin = 0; begin < n; begin += 8, in += kBits) {
      const size_t count = std::min<size_t>(8, n - begin);
      uint64_t bits = 0;
      std::memcpy(&bits, in, IntegerBytes<kBits>(count));
      for (size_t i = 0; i < count; ++i) {
        const auto whole = static_cast<int64_t>(bits << (64 - kBits * (i + 1))) >> (64 - kBits);
        out[begin + i] = static_cast<float>(whole) * unit;
      }
    }
  }
}

// --- 2-bit integers

constexpr size_t CoarseBytes(size_t n) { return (n + 3) / 4; }
constexpr bool CoarseIsLess(size_t n) { return CoarseBytes(n) < IntegerBytes<4>(n); }

// Whether integers of kBits bits are exact.
template <int kBits>
bool Fits(const float* x, size_t n) {
  const uint8_t byte = FewByte(NearestByte<kBits>(LargestBits(x, n)));
  if (byte == kFloats) return true;
  const float inverse = InverseOf(byte);
  return std::all_of(x, x + n, [=](float each) { return Nearest(each * inverse) == each * inverse; });
}

// The byte of a block, whose integers' half step is the power of two that is nearest to .62 of the mean
// magnitude; 0: there is none.
uint8_t CoarseByte(const float* x, size_t n) {
  if (Fits<4>(x, n)) return 0;
  float sum = 0;
  for (size_t i = 0; i < n; ++i) sum += std::fabs(x[i]);
  // The root of 2: the exponent below is rounded down.
  const uint32_t exponent = FloatBits(0.62f * std::sqrt(2.0f) * (sum / static_cast<float>(n))) >> 23;
  if (exponent <= kFewByte || exponent - kFewByte > kMostFewByte) return 0;
  return static_cast<uint8_t>(exponent - kFewByte) | kOther;
}

uint8_t* PackCoarse(uint8_t byte, const float* x, size_t n, uint8_t* out) {
  *out++ = byte;
  std::memset(out, 0, CoarseBytes(n));
  const float inverse = InverseOf((byte & ~kOther) + kFewByte) * 0.5f;
  for (size_t i = 0; i < n; ++i) {
    const float whole = std::min(std::max(std::floor(x[i] * inverse), -2.0f), 1.0f);
    out[i / 4] |= static_cast<uint8_t>((static_cast<int32_t>(whole) & 3) << 2 * (i % 4));
  }
  return out + CoarseBytes(n);
}

void FromCoarse(const uint8_t* in, size_t n, float unit, float* out) {
  constexpr float kOf[] = {1, 3, -3, -1};
  for (size_t i = 0; i < n; ++i) out[i] = kOf[in[i / 4] >> 2 * (i % 4) & 3] * unit;
}

// Reads a block of elements of kBits bits. Returns false if it is cut off or its byte is invalid.
template <int kBits>
bool UnpackBlock(size_t n, Reader* in, float* out) {
  uint8_t byte = in->Fixed<uint8_t>();
  if (byte == 0) return false;
  bool other = false;
  if (kBits < 8 && byte != kFloats) {
    other = (byte & kOther) != 0;
    byte &= ~kOther;
    if (byte == 0 || byte > kMostFewByte || (kBits == 4 && other && !CoarseIsLess(n))) return false;
    byte += kFewByte;
  }
  const size_t packed = !other ? IntegerBytes<kBits>(n) : kBits == 4 ? CoarseBytes(n) : n;
  const uint8_t* const bytes = in->Raw(byte == kFloats ? n * sizeof(float) : packed);
  if (bytes == nullptr) return false;
  if (byte == kFloats) {
    std::memcpy(out, bytes, n * sizeof(float));
  } else if (other) {
    kBits == 4 ? FromCoarse(bytes, n, ScaleOf(byte), out) : FromIntegers<8>(bytes, n, ScaleOf(byte), out);
  } else if constexpr (kBits == 16) {
    FromHalves(bytes, n, ScaleOf(byte), out);
  } else {
    FromIntegers<kBits>(bytes, n, ScaleOf(byte), out);
  }
  return true;
}

}  // namespace

uint8_t* PackSlotBlock(const float* x, size_t n, bool down, uint8_t* out) {
  return PackHalves(x, n, down, out);
}

uint8_t* PackValueBlock(const Rounding& rounding, size_t block, const float* x, uint8_t* out) {
  if (rounding.format == RowFormat::kInt8) return PackIntegers<8>(x, block, rounding.dither, out);
  if (rounding.format == RowFormat::kInt5) {
    if (!Fits<8>(x, block) || Fits<5>(x, block)) return PackIntegers<5>(x, block, rounding.dither, out);
    return PackIntegers<8, /*kFew=*/true>(x, block, 0, out, kOther);
  }
  const uint8_t coarse = rounding.coarse && CoarseIsLess(block) ? CoarseByte(x, block) : 0;
  return coarse != 0 ? PackCoarse(coarse, x, block, out) : PackIntegers<4>(x, block, rounding.dither, out);
}

bool UnpackSlotBlock(size_t n, Reader* in, float* x) { return UnpackBlock<16>(n, in, x); }

bool UnpackValueBlock(RowFormat format, size_t n, Reader* in, float* x) {
  const auto unpack = format == RowFormat::kFloat16 ? &UnpackBlock<16>
                      : format == RowFormat::kInt4  ? &UnpackBlock<4>
                      : format == RowFormat::kInt5  ? &UnpackBlock<5>
                                                    : &UnpackBlock<8>;
  return unpack(n, in, x);
}

size_t LeastValueBytes(RowFormat format, size_t n) {
  return format == RowFormat::kInt4   ? CoarseBytes(n)
         : format == RowFormat::kInt5 ? IntegerBytes<5>(n)
                                      : n * (format == RowFormat::kInt8 ? 1 : 2);
}

}  // namespace het
