// Exports updates from the device: those of evicted rows (install), taken rows and due rows (tick).
#pragma once

#include <vector>

#include "het_tf/kernels/cuda/batch.h"

namespace het::dev {

// Returns the indices of n updates in order of (use, key).
Dev<uint32_t> OrderByUseAndKey(Context& context, Dev<uint64_t> keys, Dev<uint32_t> uses, uint64_t n,
                               uint32_t n_uses);

// The destination of exported updates: in order of (use, key), in device memory.
struct LeavingView {
  Dev<uint64_t> begins;  // for each use: its first row and its first float
  Dev<int64_t> keys;
  Dev<uint32_t> ticks;
  Dev<int64_t> clocks;
  Dev<float> updates;
};
// The update of row number `at`.
HET_DEV float* LeavingUpdate(const LeavingView& to, uint32_t use, const TableView& table, uint64_t at) {
  const uint64_t* begin = static_cast<uint64_t*>(to.begins) + uint64_t{use} * 2;
  return static_cast<float*>(to.updates) + begin[1] + (at - begin[0]) * table.row_floats;
}
// Writes the other fields, while the slot's base is still without these ticks. On one lane.
HET_DEV void WriteLeaving(const LeavingView& to, uint64_t at, const Slot& slot, uint32_t ticks) {
  static_cast<int64_t*>(to.keys)[at] = slot.key;
  static_cast<uint32_t*>(to.ticks)[at] = ticks;
  static_cast<int64_t*>(to.clocks)[at] = slot.base + ticks;
}

// Host side of LeavingView. Call Reserve before any change, then Copy, wait for the stream, and Export.
class Leaving {
 public:
  // Allocates all memory, for counts[u] rows of use u.
  void Reserve(Context& context, const HetDevBatch& batch, const std::vector<uint64_t>& counts);
  // Puts the copies on the stream.
  void Copy(Context& context);
  HetDevExport Export() const { return {tables_, list_, 0, nullptr, nullptr}; }

  const LeavingView& view() const { return view_; }
  uint64_t n() const { return n_; }

 private:
  size_t HeadBytes() const { return n_ * (2 * sizeof(int64_t) + sizeof(uint32_t)); }
  void List(const HetDevBatch& batch, const std::vector<uint64_t>& counts);

  LeavingView view_;
  uint64_t n_ = 0;
  uint64_t floats_ = 0;
  Dev<char> heads_;  // keys, clocks and ticks, to copy them at once
  char* host_heads_ = nullptr;
  float* host_updates_ = nullptr;
  HetDevUpdates* list_ = nullptr;
  uint32_t tables_ = 0;
};

// n rows of tables, in device memory: row i is row `rows[i]` of use `uses[i]`, with key keys[i].
struct DirtyRows {
  Dev<uint64_t> keys;
  Dev<uint32_t> uses;
  Dev<uint64_t> rows;
};

// Exports updates from rows. Use it like Leaving.
class Updates {
 public:
  // Also computes the order.
  void Reserve(Context& context, const HetDevBatch& batch, const DirtyRows& rows,
               const std::vector<uint64_t>& counts);
  // Copies the rows' state at this point of the stream.
  void Copy(Context& context, const KernelBatch& batch);
  HetDevExport Export() const { return leaving_.Export(); }

 private:
  DirtyRows rows_;
  Dev<uint32_t> order_;
  Leaving leaving_;
};

}  // namespace het::dev
