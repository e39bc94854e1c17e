// A HetDevBatch, checked and put where kernels see it; and rows of a call. Host side.
#ifndef HET_TF_KERNELS_CUDA_BATCH_H_
#define HET_TF_KERNELS_CUDA_BATCH_H_

#include "het_tf/kernels/cuda/context.h"
#include "het_tf/kernels/cuda/layout.h"

struct HetDevTable {
  std::string name;
  uint64_t capacity;
  het::dev::TableView view;
  het::dev::Block memory;
  bool keep_updates;
  uint64_t first_uses;  // since frequencies were halved
  uint64_t inserts;
  uint64_t evictions;
};

struct HetDevCall {
  het::dev::CallRows rows;  // what the blocks hold
  het::dev::Block index, slots, uses, begins, floats;
  uint64_t floats_used;
  // Of the last HetDevLookup: 1 for each position whose row was left out.
  het::dev::Block left_out;
  uint64_t positions;
};

namespace het::dev {

// Checks the batch and puts it into device memory; HET_DEV_INVALID. After context.Begin(). `gradients`: they are
// needed (HetDevSum).
BatchView MakeBatch(Context& context, const HetDevCall& call, const HetDevBatch& batch, bool gradients);

// A set of (use, key) that are missing, for HetDevWanted: each once, however many positions have it.
struct WantedView {
  Dev<uint32_t> set;  // positions; mask + 1 entries
  uint32_t mask;
  Dev<uint32_t> n;
  Dev<uint32_t> uses;  // room for as many as there are positions
  Dev<int64_t> keys;
  Dev<int64_t> bases;
};
WantedView MakeWanted(Context& context, const BatchView& batch);
// Copies the list to the host. Waits for the stream. `reads` and `hits` stay null.
void ReadWanted(Context& context, const WantedView& view, HetDevWanted* wanted);

}  // namespace het::dev

#endif  // HET_TF_KERNELS_CUDA_BATCH_H_
