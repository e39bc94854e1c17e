// Rows on the wire in half of their size, a quarter, or an eighth.
//
// A row, or an update, is blocks of `block` floats (a table's dim: the value, then the slots that have as
// many) and then up to block - 1 single floats (a slot of one float a row). Each block travels behind one
// byte that says how to read it.
//
//   kFloat32   the row as it is, without any such byte
//   kFloat16   blocks of 16-bit floats; single floats as they are
//   kInt8      the first block 8-bit integers, for values; the others 16-bit floats, for slots; of a single
//              float the upper half (bfloat16), or where that is not all of it a NaN and its four bytes
//   kInt4      the same, but the first block 4-bit integers, two a byte, the first in its lower half
//
//   byte       the block
//   1 .. 254   16-bit floats, or integers where the format says so; an element is that times
//              2^(byte - 127), and the largest of the block nearly fills the type: nothing overflows
//   0          only in place of integers: a block of the next larger kind follows, 8-bit integers in place
//              of 4-bit ones, 16-bit floats in place of those
//   255        the floats as they are
//
// What is rounded away. 16-bit floats keep 11 bits of every element, and of one that is smaller than 2^-29 of
// the block's largest fewer; below 2^-39 of it nothing is left. Integers keep 1/254 to 1/127 (8 bits) or 1/15
// to 1/8 (4 bits) of the block's largest for all. A single float keeps 8 bits beside integers. Powers of two
// as scales mean that integers up to 2048 (16 bits), 127 and 7 are exact, that what was rounded is not
// changed by another rounding, and that x - Round(x) is exact. A block in which a number is infinite, not a
// number or next to the largest float is never rounded.
//
// Two ways to pack: PackRows loses nothing, whatever it is given, and is small for rows that were rounded
// before: so who rounds decides what the other side has, and keeps the rest (an update's error feedback,
// unsent.h). PackRounded rounds on the way. The same bits on every machine, with and without F16C.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "het_tf/core/base/alloc.h"
#include "het_tf/core/base/bytes.h"
#include "het_tf/core/base/status.h"

namespace het {

enum class RowFormat : uint8_t { kFloat32 = 0, kFloat16 = 1, kInt8 = 2, kInt4 = 3 };

inline bool IsRowFormat(uint64_t format) { return format <= static_cast<uint64_t>(RowFormat::kInt4); }
const char* RowFormatName(RowFormat format);
// "float32", "float16", "int8", "int4". InvalidArgument lists them.
Result<RowFormat> ParseRowFormat(const std::string& name);

// What a row or an update is rounded to.
struct Rounding {
  RowFormat format = RowFormat::kFloat32;
  // Floats from here on are slots' terms, and are rounded towards zero. What is left of a term that is not
  // negative is then not negative either, so a sum of squares never falls below zero at the server, however
  // other workers' updates come in between. For updates whose rest is kept; otherwise the nearest, which is
  // not off to one side.
  size_t down_from = SIZE_MAX;
  // Not 0: integers are rounded up or down at random, so that what is expected is the element itself.
  // For updates whose rest is lost: the nearest would lose small elements each time. Every number has random
  // numbers of its own.
  uint64_t dither = 0;
};

// out <- row, rounded. `out` may be `row`.
void RoundRow(Rounding rounding, size_t block, size_t floats, const float* row, float* out);

// No packed row is larger, and none is smaller.
size_t MostRowBytes(RowFormat format, size_t block, size_t floats);
size_t LeastRowBytes(RowFormat format, size_t block, size_t floats);

// n rows of `floats` floats each, one behind the other, without a loss.
void PackRows(RowFormat format, size_t block, size_t floats, const float* rows, size_t n, Writer* out);
// n rows, rounded to the nearest.
void PackRounded(RowFormat format, size_t block, size_t floats, const float* const* rows, size_t n,
                 Writer* out);
// False for what neither of the two can have written. Takes memory in proportion to what is left to read.
bool UnpackRows(RowFormat format, size_t block, size_t floats, size_t n, Reader* in, Vector<float>* rows);

}  // namespace het
