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
#include "het_tf/ext/serving/cc/serve/serve_format.h"

namespace het::serve {

// Parses "float32", "float16", "bfloat16" or "int8". InvalidArgument lists them.
Result<RowType> ParseRowType(const std::string& name);
const char* RowTypeName(RowType type);
inline bool IsRowType(RowType type) { return type <= RowType::kInt8; }

// The distance between two rows: a multiple of four.
size_t RowBytes(RowType type, size_t dim);

// Returns whether the type can represent all finite values.
bool Fits(RowType type, const float* values, size_t dim);
// Writes RowBytes() bytes.
void EncodeRow(RowType type, const float* values, size_t dim, uint8_t* row);
// `row` must be aligned as a float.
void DecodeRow(RowType type, const uint8_t* row, size_t dim, float* values);

}  // namespace het::serve
