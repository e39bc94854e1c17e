#include "het_tf/core/serve/row_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace het::serve {
namespace {

uint32_t Bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

float FromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

uint16_t ToBfloat16(float value) {
  const uint32_t bits = Bits(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

uint16_t ToFloat16(float value) {
  const uint32_t bits = Bits(value), magnitude = bits & 0x7fffffff;
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  if (magnitude > 0x7f800000) return sign | 0x7e00;   // NaN
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // rounds to 65536 or more
  if (magnitude < 0x38800000) {  // below the smallest normal one, 2^-14: a multiple of 2^-24
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(FromBits(magnitude) * 0x1p24f)));
  }
  const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
}

float FromFloat16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = (half >> 10) & 0x1f, fraction = half & 0x3ff;
  if (exponent == 0x1f) return FromBits(sign | 0x7f800000 | (fraction << 13));
  if (exponent == 0) return FromBits(sign | Bits(static_cast<float>(fraction) * 0x1p-24f));
  return FromBits(sign | ((exponent + 112) << 23) | (fraction << 13));
}

void DecodeFloat16(const uint8_t* row, size_t dim, float* values) {
  size_t i = 0;
#if defined(__F16C__) && defined(__AVX__)
  for (; i + 8 <= dim; i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + 2 * i));
    _mm256_storeu_ps(values + i, _mm256_cvtph_ps(halves));
  }
#endif
  for (; i < dim; ++i) {
    uint16_t half;
    std::memcpy(&half, row + 2 * i, sizeof half);
    values[i] = FromFloat16(half);
  }
}

void EncodeInt8(const float* values, size_t dim, uint8_t* row) {
  float most = 0;
  for (size_t i = 0; i < dim; ++i) most = std::max(most, std::fabs(values[i]));
  const float scale = most / 127;
  std::memcpy(row, &scale, sizeof scale);
  for (size_t i = 0; i < dim; ++i) {
    // A scale that is no normal number would make nonsense of the quotient.
    const float quotient = scale > 0 && std::isfinite(scale) ? std::nearbyint(values[i] / scale) : 0;
    row[sizeof scale + i] =
        static_cast<uint8_t>(static_cast<int8_t>(std::min(127.0f, std::max(-127.0f, quotient))));
  }
}

}  // namespace

Result<RowType> ParseRowType(const std::string& name) {
  for (uint32_t type = 0; IsRowType(static_cast<RowType>(type)); ++type) {
    if (name == RowTypeName(static_cast<RowType>(type))) return static_cast<RowType>(type);
  }
  return InvalidArgument("rows is '" + name + "'; it must be 'float32', 'float16', 'bfloat16' or 'int8'");
}

const char* RowTypeName(RowType type) {
  switch (type) {
    case RowType::kFloat32:
      return "float32";
    case RowType::kFloat16:
      return "float16";
    case RowType::kBfloat16:
      return "bfloat16";
    case RowType::kInt8:
      return "int8";
  }
  return "unknown";
}

size_t RowBytes(RowType type, size_t dim) {
  size_t bytes = 4 * dim;
  if (type == RowType::kFloat16 || type == RowType::kBfloat16) bytes = 2 * dim;
  if (type == RowType::kInt8) bytes = sizeof(float) + dim;
  return (bytes + 3) / 4 * 4;
}

bool Fits(RowType type, const float* values, size_t dim) {
  if (type != RowType::kFloat16) return true;
  return std::all_of(values, values + dim, [](float value) {
    return !std::isfinite(value) || std::fabs(value) < 65520;  // from there on it rounds to infinity
  });
}

void EncodeRow(RowType type, const float* values, size_t dim, uint8_t* row) {
  if (type == RowType::kFloat32) {
    std::memcpy(row, values, dim * sizeof(float));
    return;
  }
  std::memset(row + RowBytes(type, dim) - 4, 0, 4);
  if (type == RowType::kInt8) return EncodeInt8(values, dim, row);
  for (size_t i = 0; i < dim; ++i) {
    const uint16_t half = type == RowType::kFloat16 ? ToFloat16(values[i]) : ToBfloat16(values[i]);
    std::memcpy(row + 2 * i, &half, sizeof half);
  }
}

void DecodeRow(RowType type, const uint8_t* row, size_t dim, float* values) {
  switch (type) {
    case RowType::kFloat32:
      std::memcpy(values, row, dim * sizeof(float));
      return;
    case RowType::kFloat16:
      return DecodeFloat16(row, dim, values);
    case RowType::kBfloat16:
      for (size_t i = 0; i < dim; ++i) {
        uint16_t half;
        std::memcpy(&half, row + 2 * i, sizeof half);
        values[i] = FromBits(static_cast<uint32_t>(half) << 16);
      }
      return;
    case RowType::kInt8: {
      float scale;
      std::memcpy(&scale, row, sizeof scale);
      const auto* steps = reinterpret_cast<const int8_t*>(row + sizeof scale);
      for (size_t i = 0; i < dim; ++i) values[i] = scale * static_cast<float>(steps[i]);
      return;
    }
  }
}

}  // namespace het::serve
