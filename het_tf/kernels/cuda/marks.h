// How the state of a row's copy changes, in Slot::used: the moves of core/cache/line_marks.h.
#pragma once

#include "het_tf/kernels/cuda/probe.h"
#include "het_tf/kernels/cuda/tile.h"

namespace het::dev {

enum class Mark : int { kInvalidate, kNotify, kUnsubscribe, kSubscribe };

HET_HOST_DEVICE inline uint64_t Marked(uint64_t used, Mark mark) {
  switch (mark) {
    case Mark::kInvalidate:
      return (used & ~kCopyBits) | kInvalid;
    case Mark::kNotify:
      return (used & kSubscribed) == 0 ? used : (used & ~kCopyBits) | kMoved;
    case Mark::kUnsubscribe:
      return used & ~kSubscribed;
    case Mark::kSubscribe:
      return (used & kInvalid) != 0 ? used : (used & ~kCopyBits) | kSubscribed;
  }
  return used;
}

// An answer has brought the row.
HET_HOST_DEVICE inline uint64_t Renewed(uint64_t used, bool subscribed) {
  return (used & ~(kInvalid | kMoved)) | (subscribed ? kSubscribed : 0);
}

// On one lane, for a row that no other kernel writes meanwhile. Several lanes may have it: their words are
// equal.
HET_DEV void MarkRow(Slot* slot, Mark mark) {
  AtomicStore(&slot->used, Marked(AtomicLoad(&slot->used), mark));
}

// Marks the rows of n keys, 32 an item.
struct MarkKeysKernel {
  TableView table;
  Mark mark;
  Dev<int64_t> keys;
  uint64_t n;

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t item) const {
    tile.ForEach(32, [&](uint64_t lane) {
      const uint64_t i = item * 32 + lane;
      if (i >= n) return;
      const uint64_t row = FindInTable(table, static_cast<int64_t*>(keys)[i]);
      if (row != kNowhere) MarkRow(static_cast<Slot*>(table.slots) + row, mark);
    });
  }
};

}  // namespace het::dev
