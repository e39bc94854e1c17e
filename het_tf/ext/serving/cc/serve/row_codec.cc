#include "het_tf/ext/serving/cc/serve/row_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "het_tf/core/base/half.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace het::serve {
namespace {

uint16_t ToBfloat16(float value) {
  const uint32_t bits = FloatBits(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
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
    values[i] = FromHalf(half);
  }
}

void EncodeInt8(const float* values, size_t dim, uint8_t* row) {
  float most = 0;
  for (size_t i = 0; i < dim; ++i) most = std::max(most, std::fabs(values[i]));
  const float scale = most / 127;
  std::memcpy(row, &scale, sizeof scale);
  for (size_t i = 0; i < dim; ++i) {
    // With a scale of 0, infinity or NaN the quotient would be meaningless.
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
    return !std::isfinite(value) || std::fabs(value) < 65520;  // larger values round to infinity
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
    const uint16_t half = type == RowType::kFloat16 ? ToHalf(values[i]) : ToBfloat16(values[i]);
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
        values[i] = FloatFromBits(static_cast<uint32_t>(half) << 16);
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
