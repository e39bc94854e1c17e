// Finds a key's row. Device functions; see layout.h.
#pragma once

#include "het_tf/kernels/cuda/layout.h"
#include "het_tf/kernels/cuda/tile.h"

namespace het::dev {

HET_DEV uint64_t HashInCall(uint32_t use, int64_t key) {
  return Mix64(static_cast<uint64_t>(key) + (use + 1) * 0x9e3779b97f4a7c15ULL);
}

// Returns the row's number, or kNowhere.
template <typename Tile>
HET_DEV uint64_t FindInTable(const Tile& tile, const TableView& table, int64_t key) {
  const uint64_t hash = HashKey(key, table.hash_seed);
  const uint64_t first = BucketOf(hash, table.buckets) * kBucketSlots;
  const uint8_t* digests = table.digests;
  const Slot* slots = table.slots;
  for (uint32_t mask = tile.Match32(digests + first, DigestOf(hash)); mask != 0; mask &= mask - 1) {
    const uint64_t row = first + LowestBit(mask);
    if (slots[row].key == key) return row;
  }
  return kNowhere;
}

// The same, on one lane.
struct OneLane {
  HET_DEV uint32_t Match32(const uint8_t* bytes, uint8_t byte) const { return dev::Match32(bytes, byte); }
};
HET_DEV uint64_t FindInTable(const TableView& table, int64_t key) {
  return FindInTable(OneLane(), table, key);
}

HET_DEV uint64_t FindInCall(const CallRows& call, uint32_t use, int64_t key) {
  if (call.n == 0) return kNowhere;
  const uint32_t* index = call.index;
  const Slot* slots = call.slots;
  const uint32_t* uses = call.uses;
  for (uint32_t at = static_cast<uint32_t>(HashInCall(use, key)) & call.mask;; at = (at + 1) & call.mask) {
    const uint32_t row = index[at];
    if (row == kEmpty) return kNowhere;
    if (slots[row].key == key && uses[row] == use) return kOfCall | row;
  }
}

template <typename Tile, typename Batch>
HET_DEV uint64_t Find(const Tile& tile, const Batch& batch, uint32_t use, int64_t key) {
  const uint64_t row = FindInTable(tile, batch.use(use).table, key);
  return row != kNowhere ? row : FindInCall(batch.call, use, key);
}

}  // namespace het::dev
