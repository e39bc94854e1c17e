// A HetDevBatch, checked and put where kernels see it, and the list of rows that a call wants. Host side.
#pragma once

#include "het_tf/kernels/cuda/context.h"
#include "het_tf/kernels/cuda/layout.h"
#include "het_tf/kernels/cuda/table.h"

namespace het::dev {

// Checks the batch and puts it into device memory; HET_DEV_INVALID. After context.Begin(). `gradients`: they
// are needed (HetDevSum).
BatchView MakeBatch(Context& context, const HetDevCall& call, const HetDevBatch& batch, bool gradients);

// Rows that are wanted, for HetDevWanted; a set keeps each (use, key) once, however many positions have it.
struct WantedView {
  Dev<uint32_t> set;  // positions; mask + 1 entries
  uint32_t mask;
  Dev<uint32_t> n;  // and behind it `counts` numbers of the caller's, 0 at first
  uint32_t counts;
  Dev<uint32_t> uses;  // room for as many as there are positions
  Dev<int64_t> keys;
  Dev<int64_t> bases;
};
WantedView MakeWanted(Context& context, const BatchView& batch, uint32_t counts = 0);
// Copies the list to the host. Waits for the stream. `reads` and `hits` stay null. Answers the
// caller's counts.
const uint32_t* ReadWanted(Context& context, const WantedView& view, HetDevWanted* wanted);

}  // namespace het::dev
