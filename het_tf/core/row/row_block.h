// The blocks of a packed row (row_format.h): a byte that tells how to read it, then n elements.
#pragma once

#include "het_tf/core/row/row_format.h"

namespace het {

// Write a block, and return its end. Of a slot; `down`: towards zero.
uint8_t* PackSlotBlock(const float* x, size_t n, bool down, uint8_t* out);
// Of a value in one of the formats of integers.
uint8_t* PackValueBlock(const Rounding& rounding, size_t n, const float* x, uint8_t* out);

// Read a block. Return false if it is cut off, or its byte is none.
bool UnpackSlotBlock(size_t n, Reader* in, float* x);
bool UnpackValueBlock(RowFormat format, size_t n, Reader* in, float* x);

// The least bytes of a value's elements.
size_t LeastValueBytes(RowFormat format, size_t n);

}  // namespace het
