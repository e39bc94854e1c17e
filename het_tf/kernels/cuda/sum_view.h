// The result of HetDevSum in scratch memory, for HetDevTick. See sum.cu.
#pragma once

#include <vector>

#include "het_tf/kernels/cuda/layout.h"

namespace het::dev {

// Ids are sorted by the place of their row (layout.h); from BatchSizes::places() on they have no row to tick.
// A row's ids are a *segment*, in batch order. A segment's data is at its first entry's index.
struct SumView {
  Dev<uint64_t> sorted;  // FoundWords
  Dev<uint32_t> order;   // the position of each entry; kEmpty: of a segment that gets no tick
  Dev<float> sums;       // sum_stride floats an entry, summed and scaled
  uint64_t positions = 0;
  uint32_t n_uses = 0;
  uint32_t n_features = 0;
  uint32_t sum_stride = 0;
  // Rows whose update leaves with this tick, unordered: entries and keys.
  Dev<uint32_t> due;
  Dev<uint64_t> due_keys;
  Dev<uint32_t> due_uses;
  std::vector<uint64_t> due_of_use;  // number of due rows of each use
};

// The part that kernels need, without the vector.
struct Segments {
  Dev<const uint64_t> sorted;
  Dev<uint32_t> order;
  Dev<float> sums;
  uint32_t positions;
  uint32_t sum_stride;

  // Returns the place of an entry, and kNoPlace past the end.
  HET_DEV uint64_t PlaceAt(uint64_t entry) const {
    return entry < positions ? PlaceIn(static_cast<const uint64_t*>(sorted)[entry]) : kNoPlace;
  }
  HET_DEV float* SumAt(uint64_t entry) const { return static_cast<float*>(sums) + entry * sum_stride; }
};

inline Segments SegmentsOf(const SumView& view) {
  return {view.sorted, view.order, view.sums, static_cast<uint32_t>(view.positions), view.sum_stride};
}

// The row of a segment.
struct RowOfSegment {
  uint32_t use;
  uint64_t row;  // as Find returns it
};
template <typename Batch>
HET_DEV RowOfSegment RowOfEntry(const Segments& s, const Batch& batch, uint64_t entry) {
  const uint64_t word = static_cast<const uint64_t*>(s.sorted)[entry];
  const uint32_t use = batch.feature(FeatureIn(word)).use;
  return {use, RowOf(batch, batch.use(use), PlaceIn(word))};
}

// The bound of core/wire/bound.h.
HET_DEV int64_t PushBound(const UseView& use, int64_t clock) {
  if (use.push_every == 0) return use.push_bound;
  const int64_t age = AgeOf(clock);
  const bool early = age < use.push_from && use.push_early < use.push_bound;
  const int64_t most = early ? use.push_early : use.push_bound;
  const int64_t of_age = age / use.push_every;
  return of_age < most ? of_age : most;
}

// Whether one more tick makes the update due.
HET_DEV bool WillLeave(const UseView& use, const RowOfSegment& row, const Slot& slot) {
  const int64_t ticks = int64_t{slot.ticks} + 1;
  return (row.row & kOfCall) != 0 || ticks > PushBound(use, slot.base + ticks);
}

// Whether the update that then leaves has more than one tick past the push bound: the bound was lowered.
HET_DEV bool IsOverdue(const UseView& use, const RowOfSegment& row, const Slot& slot) {
  const int64_t ticks = int64_t{slot.ticks} + 1;
  return (row.row & kOfCall) == 0 && ticks - 1 > PushBound(use, slot.base + ticks);
}

}  // namespace het::dev
