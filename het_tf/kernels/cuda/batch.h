// Host side: checks a HetDevBatch and copies it to the device; reads the list of a call's wanted rows.
#pragma once

#include "het_tf/kernels/cuda/context.h"
#include "het_tf/kernels/cuda/layout.h"
#include "het_tf/kernels/cuda/table.h"

namespace het::dev {

// Checks the batch and copies it to device memory. Call after context.Begin(). HET_DEV_INVALID: a check
// failed. `gradients`: the batch must have them (HetDevSum).
BatchView MakeBatch(Context& context, const HetDevCall& call, const HetDevBatch& batch, bool gradients);

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
WantedView MakeWanted(Context& context, const BatchView& batch, uint32_t counts = 0);
// Copies the list to the host and waits. `reads` and `hits` stay null. Returns the caller's counts.
const uint32_t* ReadWanted(Context& context, const WantedView& view, HetDevWanted* wanted);

}  // namespace het::dev
