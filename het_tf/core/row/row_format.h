// Rows on the wire in half of their size, a quarter, an eighth, or less.
//
// A row, or an update, is blocks of `block` floats (a table's dim: the value, then the slots that have as
// many) and then up to block - 1 single floats (a slot of one float a row). A byte before each block tells
// how to read it.
//
//   kFloat32   the row as it is, without such a byte
//   kFloat16   blocks of 16-bit floats; single floats as they are
//   kInt8      the first block 8-bit integers, for values; the others 16-bit floats, for slots; of a single
//              float the upper half (bfloat16), or a NaN and four bytes where no half is near it
//   kInt4      the same, but the first block 4-bit integers, two a byte, the first in its lower half; or
//              2-bit ones, four a byte, where the rounding is coarse. A single float is the upper 11 bits of
//              one in [2^-48, 2^15), less a constant, in a byte; 0 is below that range, and before a float
//              that is negative or above it stands a byte of 255, then what kInt8 has. For updates
//   kInt5      the same, but the first block 5-bit integers, eight in five bytes, the first in the lowest
//              bits. For the rows that answer a client whose updates are kInt4
//
//   byte       the block
//   1 .. 254   16-bit floats, or 8-bit or 5-bit integers; an element is that times 2^(byte - 127), and the
//              largest of the block nearly fills the type: nothing overflows
//   1 .. 126   4-bit integers: times 2^(byte - 97)
//   129 .. 254 2-bit integers i: an element is (2 i + 1) times 2^(byte - 225)
//   255        the floats as they are
//
// Precision. 16-bit floats keep 11 bits of an element, fewer of one below 2^-29 of the block's largest, and
// none of one below 2^-39 of it. Integers keep 1/254 to 1/127 (8 bits), 1/31 to 1/16 (5 bits) or 1/15 to 1/8
// (4 bits) of the block's largest for all elements. 2-bit integers keep a sign, and whether an element is
// above the mean magnitude or so: by the quantizer of least mean squared error of four equal steps (Max 1960,
// "Quantizing for minimum distortion"), whose step is .996 of a normal deviate's deviation, to a power of
// two. A single float keeps 8 bits, or in kInt4 and kInt5 3. Scales are powers of two: so integers up to 2048
// (16 bits), 127, 15 and 7 are exact, packing an unpacked row again changes no number, and x - Unpack(x) is
// exact, but of 2-bit integers. A block with a number that is infinite, not a number or next to the largest
// float is not rounded, nor one above 2^31 in kInt4 and kInt5.
//
// The sender rounds, and may keep the remainder (an update's error feedback, unsent.h). All machines write
// the same bits, with and without F16C.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "het_tf/core/base/alloc.h"
#include "het_tf/core/base/bytes.h"
#include "het_tf/core/base/status.h"

namespace het {

enum class RowFormat : uint8_t { kFloat32 = 0, kFloat16 = 1, kInt8 = 2, kInt4 = 3, kInt5 = 4 };

inline bool IsRowFormat(uint64_t format) { return format <= static_cast<uint64_t>(RowFormat::kInt5); }
const char* RowFormatName(RowFormat format);
// "float32", "float16", "int8", "int4": what users may choose. InvalidArgument lists them.
Result<RowFormat> ParseRowFormat(const std::string& name);

// How rows are rounded.
struct Rounding {
  RowFormat format = RowFormat::kFloat32;
  // Floats from here on are slots' terms, and are rounded towards zero. The remainder of a non-negative term
  // is then non-negative, too, so a sum of squares at the server stays above zero, whatever updates of other
  // workers come in between. For updates whose remainder is kept. Other floats are rounded to the nearest.
  size_t down_from = SIZE_MAX;
  // Not 0: integers are rounded up or down at random, so that the mean is the element itself. For updates
  // whose remainder is lost: the nearest integer would lose small elements each time. Every number gives
  // other random numbers.
  uint64_t dither = 0;
  // kInt4: the first block in 2 bits, if that is less than in 4. For updates that are small beside their
  // rows, and whose remainder is kept.
  bool coarse = false;
};

// Limits on the bytes of a packed row.
size_t MostRowBytes(RowFormat format, size_t block, size_t floats);
size_t LeastRowBytes(RowFormat format, size_t block, size_t floats);

// Appends n rows of `floats` floats, one behind the other.
void PackRows(const Rounding& rounding, size_t block, size_t floats, const float* const* rows, size_t n,
              Writer* out);
// Return false for bytes that PackRows cannot have written. UnpackRows takes memory in proportion to the
// bytes that are left.
bool UnpackRow(RowFormat format, size_t block, size_t floats, Reader* in, float* row);
bool UnpackRows(RowFormat format, size_t block, size_t floats, size_t n, Reader* in, Vector<float>* rows);

}  // namespace het
