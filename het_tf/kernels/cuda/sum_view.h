// The result of HetDevSum in scratch memory, for HetDevTick. See sum.cu.
#pragma once

#include <vector>

#include "het_tf/kernels/cuda/layout.h"

namespace het::dev {

// Positions are sorted by the *place* of their row (UseView::first_place); BatchView::places means "no tick
// here". A row's positions are a *segment*, in batch order. A segment's data is at its first entry's index.
struct SumView {
  Dev<uint64_t> sorted;  // places, ascending
  Dev<uint32_t> order;   // the position of each entry
  Dev<float> sums;       // sum_stride floats an entry, summed and scaled
  uint64_t positions = 0;
  uint32_t n_uses = 0;
  uint32_t sum_stride = 0;
  // Rows whose update leaves with this tick, unordered: entries and keys.
  Dev<uint32_t> due;
  Dev<uint64_t> due_keys;
  Dev<uint32_t> due_uses;
  std::vector<uint64_t> due_of_use;  // number of due rows of each use
};

// The part that kernels need, without the vector.
struct Segments {
  Dev<uint64_t> sorted;
  Dev<uint32_t> order;
  Dev<float> sums;
  uint64_t positions;
  uint32_t n_uses;
  uint32_t sum_stride;
};

inline Segments SegmentsOf(const SumView& view) {
  return {view.sorted, view.order, view.sums, view.positions, view.n_uses, view.sum_stride};
}

// Returns whether a segment begins at this entry, of a row that gets a tick.
template <typename Batch>
HET_DEV bool BeginsSegment(const Segments& s, const Batch& batch, uint64_t entry) {
  const uint64_t* sorted = s.sorted;
  const uint64_t place = sorted[entry];
  return place != batch.places && (entry == 0 || sorted[entry - 1] != place);
}

struct Place {
  uint32_t use;
  uint64_t row;  // as Find returns it
};
template <typename Batch>
HET_DEV Place PlaceAt(const Segments& s, const Batch& batch, uint64_t entry) {
  const uint64_t place = static_cast<uint64_t*>(s.sorted)[entry];
  uint32_t low = 0;
  uint32_t high = s.n_uses;  // finds the last use that begins at or before `place`; no use is empty
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    if (batch.use(middle).first_place <= place) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const uint64_t capacity = batch.use(low).table.buckets * kBucketSlots;
  const uint64_t row = place - batch.use(low).first_place;
  return {low, row < capacity ? row : kOfCall | (row - capacity)};
}

// The bound of core/wire/bound.h.
HET_DEV int64_t PushBound(const UseView& use, int64_t clock) {
  if (use.push_every == 0) return use.push_bound;
  const int64_t of_age = AgeOf(clock) / use.push_every;
  return of_age < use.push_bound ? of_age : use.push_bound;
}

// Whether one more tick makes the update due.
HET_DEV bool WillLeave(const UseView& use, const Place& place, const Slot& slot) {
  const int64_t ticks = int64_t{slot.ticks} + 1;
  return (place.row & kOfCall) != 0 || ticks > PushBound(use, slot.base + ticks);
}

// Whether the update that then leaves has more than one tick past the push bound: the bound was lowered.
HET_DEV bool IsOverdue(const UseView& use, const Place& place, const Slot& slot) {
  const int64_t ticks = int64_t{slot.ticks} + 1;
  return (place.row & kOfCall) == 0 && ticks - 1 > PushBound(use, slot.base + ticks);
}

}  // namespace het::dev
