// Rows of one table in columns: their form between stores and files, some thousands at a time.
//
// A store keeps a row contiguous, value and slots; a file keeps each column contiguous, so that it can be
// written and read in large runs and mapped as a matrix. The copy between the two happens here, once.
//
// The memory is allocated with the batch and reused for later batches. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstring>

#include "het_tf/core/base/buffer.h"
#include "het_tf/core/row/row_store.h"
#include "het_tf/core/row/schema.h"

namespace het {

class RowBatch {
 public:
  // Bytes of one row in a batch.
  static size_t RowBytes(size_t row_floats) {
    return sizeof(Key) + sizeof(Clock) + sizeof(uint32_t) + sizeof(uint16_t) + row_floats * sizeof(float);
  }
  // Returns the rows of a batch of about `bytes`; at least one.
  static size_t RowsOf(size_t bytes, size_t row_floats) {
    return std::clamp<size_t>(bytes / RowBytes(row_floats), 1, size_t{1} << 16);
  }

  // Room for `capacity` rows of dim + slot_floats floats. Throws std::bad_alloc.
  RowBatch(size_t dim, size_t slot_floats, size_t capacity)
      : dim_(dim), slot_floats_(slot_floats), capacity_(capacity) {
    keys_.Resize(capacity);
    clocks_.Resize(capacity);
    values_.Resize(capacity * dim);
    slots_.Resize(capacity * slot_floats);
    last_used_.Resize(capacity);
    counts_.Resize(capacity);
  }
  RowBatch(const TableSchema& schema, size_t bytes)
      : RowBatch(schema.dim(), schema.row_floats() - schema.dim(), RowsOf(bytes, schema.row_floats())) {}

  size_t size() const { return size_; }
  size_t capacity() const { return capacity_; }
  size_t left() const { return capacity_ - size_; }
  size_t dim() const { return dim_; }
  size_t slot_floats() const { return slot_floats_; }
  // The caller has written `size` rows to the columns, or will before they are read.
  void set_size(size_t size) { size_ = size; }
  void Clear() { size_ = 0; }

  Key* keys() { return keys_.data(); }
  Clock* clocks() { return clocks_.data(); }
  uint32_t* last_used() { return last_used_.data(); }
  uint16_t* counts() { return counts_.data(); }
  float* values() { return values_.data(); }  // size() * dim
  float* slots() { return slots_.data(); }    // size() * slot_floats
  const Key* keys() const { return keys_.data(); }
  const Clock* clocks() const { return clocks_.data(); }
  const uint32_t* last_used() const { return last_used_.data(); }
  const uint16_t* counts() const { return counts_.data(); }
  const float* values() const { return values_.data(); }
  const float* slots() const { return slots_.data(); }

  RowMeta meta(size_t i) const { return {keys_[i], clocks_[i], last_used_[i], counts_[i], 0}; }
  const float* value(size_t i) const { return values() + i * dim_; }
  const float* slots_of(size_t i) const { return slots() + i * slot_floats_; }

  // Appends a row; there must be room. `row`: the floats of value, then slots, at any address.
  void Add(const RowMeta& meta, const void* row) { Add(meta, row, static_cast<const float*>(row) + dim_); }
  // Appends row i of `other`, which must have the same widths; there must be room.
  void Add(const RowBatch& other, size_t i) { Add(other.meta(i), other.value(i), other.slots_of(i)); }
  // Copies row i in a store's form; `row` must have room for dim + slot_floats floats.
  void CopyRow(size_t i, float* row) const {
    CopyFloats(value(i), dim_, row);
    CopyFloats(slots_of(i), slot_floats_, row + dim_);
  }

 private:
  void Add(const RowMeta& meta, const void* value, const void* slots) {
    keys_[size_] = meta.key;
    clocks_[size_] = meta.clock;
    last_used_[size_] = meta.last_used;
    counts_[size_] = meta.count;
    CopyFloats(value, dim_, values_.data() + size_ * dim_);
    CopyFloats(slots, slot_floats_, slots_.data() + size_ * slot_floats_);
    ++size_;
  }
  // A table without slots has no memory for them, and memcpy must not get null.
  static void CopyFloats(const void* from, size_t floats, float* to) {
    if (floats > 0) std::memcpy(to, from, floats * sizeof(float));
  }

  size_t dim_;
  size_t slot_floats_;
  size_t capacity_;
  size_t size_ = 0;
  Buffer<Key> keys_;
  Buffer<Clock> clocks_;
  Buffer<float> values_;
  Buffer<float> slots_;
  Buffer<uint32_t> last_used_;
  Buffer<uint16_t> counts_;
};

}  // namespace het
