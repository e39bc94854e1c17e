// Updates on their way out of the device: of rows that leave (install), that are taken, that are due (tick).
#pragma once

#include <vector>

#include "het_tf/kernels/cuda/batch.h"

namespace het::dev {

// The numbers of n updates in order of (use, key).
Dev<uint32_t> OrderByUseAndKey(Context& context, Dev<uint64_t> keys, Dev<uint32_t> uses, uint64_t n,
                               uint32_t n_uses);

// n rows of tables, in device memory: row i is row `rows[i]` of use `uses[i]`, whose key is keys[i].
struct DirtyRows {
  Dev<uint64_t> keys;
  Dev<uint32_t> uses;
  Dev<uint64_t> rows;
};

// Use: Reserve while nothing has changed yet, Copy, Wait for the stream, Export.
class Updates {
 public:
  // counts[u] rows of use u. Takes all the memory, and finds the order: by (use, key).
  void Reserve(Context& context, const HetDevBatch& batch, const BatchView& view, const DirtyRows& rows,
               const std::vector<uint64_t>& counts);
  // Puts the copies on the stream: what rows hold at that point of it.
  void Copy(Context& context, const BatchView& view);
  void Export(HetDevExport* result) const;

 private:
  DirtyRows rows_;
  uint64_t n_ = 0;
  uint64_t floats_ = 0;
  Dev<uint32_t> order_;
  Dev<uint64_t> begins_;  // of each use: its first row here, and its first float
  Dev<int64_t> keys_;
  Dev<uint32_t> ticks_;
  Dev<float> updates_;
  int64_t* host_keys_ = nullptr;
  uint32_t* host_ticks_ = nullptr;
  float* host_updates_ = nullptr;
  HetDevUpdates* list_ = nullptr;
  uint32_t tables_ = 0;
};

}  // namespace het::dev
