// A row's values in a file: as they are, in half the size, or in a quarter.
//
//   float32    the values
//   float16    rounded to the nearest, ties to even; up to 65504
//   bfloat16   rounded to the nearest, ties to even
//   int8       a float32 scale = max |value| / 127, then round(value / scale) in -127..127, and zeros up to a
//              multiple of four; a value reads as scale * int8. Its error is at most scale / 2.
#pragma once

#include <string>

#include "het_tf/core/base/status.h"
#include "het_tf/core/serve/serve_format.h"

namespace het::serve {

// "float32", "float16", "bfloat16", "int8". InvalidArgument lists them.
Result<RowType> ParseRowType(const std::string& name);
const char* RowTypeName(RowType type);
inline bool IsRowType(RowType type) { return type <= RowType::kInt8; }

// From one row to the next: a multiple of four.
size_t RowBytes(RowType type, size_t dim);

// Whether all finite values are within what the type can hold.
bool Fits(RowType type, const float* values, size_t dim);
// Writes all of RowBytes.
void EncodeRow(RowType type, const float* values, size_t dim, uint8_t* row);
// `row` is aligned as a float is.
void DecodeRow(RowType type, const uint8_t* row, size_t dim, float* values);

}  // namespace het::serve
