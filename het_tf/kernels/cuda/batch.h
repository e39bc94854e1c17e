// Host side: checks a HetDevBatch and copies it to the device; reads the list of a call's wanted rows.
#pragma once

#include <vector>

#include "het_tf/kernels/cuda/context.h"
#include "het_tf/kernels/cuda/layout.h"
#include "het_tf/kernels/cuda/table.h"

namespace het::dev {

// A batch that was checked.
struct HostBatch {
  std::vector<UseView> uses;
  std::vector<FeatureView> features;
  BatchSizes sizes;
};
// HET_DEV_INVALID: a check failed. `gradients`: the batch must have them (HetDevSum).
HostBatch CheckBatch(const HetDevCall& call, const HetDevBatch& batch, bool gradients);
// Copies it to device memory. Call after context.Begin().
BatchView Upload(Context& context, const HostBatch& batch);
inline BatchView MakeBatch(Context& context, const HetDevCall& call, const HetDevBatch& batch,
                           bool gradients) {
  return Upload(context, CheckBatch(call, batch, gradients));
}

ParameterBatch AsParameter(const HostBatch& batch);
// Calls launch(batch) with a ParameterBatch, or a BatchView if the batch has too many uses or features for
// one.
template <typename F>
void WithBatch(Context& context, const HostBatch& batch, F launch) {
  if (batch.sizes.n_uses <= ParameterBatch::kMostUses &&
      batch.sizes.n_features <= ParameterBatch::kMostFeatures) {
    launch(AsParameter(batch));
  } else {
    launch(Upload(context, batch));
  }
}

// Wanted rows, for HetDevWanted; a set keeps each (use, key) once, for any number of positions.
struct WantedView {
  Dev<uint32_t> set;  // positions; mask + 1 entries
  uint32_t mask;
  Dev<uint32_t> n;  // followed by `counts` zeros for the caller's use
  uint32_t counts;
  Dev<uint32_t> uses;  // room for one entry a position
  Dev<int64_t> keys;
  Dev<int64_t> bases;
};
WantedView MakeWanted(Context& context, const BatchSizes& batch, uint32_t counts = 0);
// Copies the list to the host and waits. `reads` and `hits` stay null. Returns the caller's counts.
const uint32_t* ReadWanted(Context& context, const WantedView& view, HetDevWanted* wanted);

}  // namespace het::dev
