// Rows as the other side reads them.
#pragma once

#include "het_tf/core/cache/unsent.h"
#include "het_tf/core/row/row_format.h"

namespace het::testing {

// out <- row, packed and unpacked. `out` may be `row`.
inline void RoundRow(const Rounding& rounding, size_t block, size_t floats, const float* row, float* out) {
  Bytes bytes;
  Writer writer(&bytes);
  PackRows(rounding, block, floats, &row, 1, &writer);
  Reader reader(bytes);
  static_cast<void>(UnpackRow(rounding.format, block, floats, &reader, out));
}

// The numbers of all updates, of rows of a table with this dim.
inline Vector<float> FloatsOf(const PackedUpdates& updates, size_t dim, size_t wire_floats) {
  Vector<float> floats;
  Reader reader(updates.rows);
  if (!UnpackRows(updates.format, dim, wire_floats, updates.keys.size(), &reader, &floats)) floats.clear();
  return floats;
}

}  // namespace het::testing
