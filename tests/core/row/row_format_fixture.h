// Helpers of row_format.h's tests: rows of any shape, packing, rounding and unpacking.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "het_tf/core/base/half.h"
#include "het_tf/core/row/row_format.h"
#include "tests/testing/packed_rows.h"
#include "tests/testing/random.h"

namespace het::row_format {

using testing::Random;
using testing::Scaled;

constexpr RowFormat kFormats[] = {RowFormat::kFloat32, RowFormat::kFloat16, RowFormat::kInt8,
                                  RowFormat::kInt4};
// Bits of an integer in the first block; 0: no integers.
inline int IntegerBits(RowFormat format) {
  return format == RowFormat::kInt8 ? 8 : format == RowFormat::kInt4 ? 4 : 0;
}
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using Row = std::vector<float>;

struct Shape {
  size_t block;
  size_t floats;
};

// Value only, with a slot of one float, with slots of dim floats; widths that suit SIMD code, and others.
inline Shape RandomShape(Random* r) {
  const size_t block = r->Pick<size_t>({1, 2, 3, 7, 8, 9, 16, 17, 64, 100, 128, 131});
  const size_t tail = block > 1 ? r->Below(2) : 0;
  return {block, block * r->Pick<size_t>({1, 2, 3}) + tail};
}

inline float RandomFloat(Random* r) {
  switch (r->Below(12)) {
    case 0:
      return r->Pick<float>({0.0f, -0.0f, 1.0f, -1.0f, 65504.0f, 65520.0f, 127.5f, -63.75f});
    case 1:  // of any size, including denormal
      return std::ldexp(static_cast<float>(r->Unit() - 0.5), static_cast<int>(r->Between(-150, 127)));
    case 2:  // much smaller than the others
      return std::ldexp(static_cast<float>(r->Unit() - 0.5), static_cast<int>(r->Between(-45, 0)));
    default:
      return static_cast<float>(r->Unit() - 0.5);
  }
}

inline Row RandomRow(size_t floats, Random* r) {
  Row row(floats);
  for (float& x : row) x = RandomFloat(r);
  return row;
}

inline Bytes Pack(const Rounding& rounding, const Shape& shape, const Row& row) {
  Bytes bytes;
  Writer writer(&bytes);
  const float* const rows[] = {row.data()};
  PackRows(rounding, shape.block, shape.floats, rows, 1, &writer);
  return bytes;
}

// Empty: it was refused, or did not end with the bytes.
inline Row Unpack(RowFormat format, const Shape& shape, const Bytes& bytes) {
  Reader reader(bytes);
  Vector<float> rows;
  if (!UnpackRows(format, shape.block, shape.floats, 1, &reader, &rows) || reader.left() > 0) return {};
  return Row(rows.begin(), rows.end());
}

inline Row Round(RowFormat format, const Shape& shape, const Row& row, size_t down_from = SIZE_MAX) {
  Row out(row.size());
  testing::RoundRow({format, down_from}, shape.block, shape.floats, row.data(), out.data());
  return out;
}

inline bool SameBits(const Row& a, const Row& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

inline float Largest(const float* x, size_t n) {
  float largest = 0;
  for (size_t i = 0; i < n; ++i) largest = std::max(largest, std::fabs(x[i]));
  return largest;
}

}  // namespace het::row_format
