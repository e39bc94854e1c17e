// Device side: the list of a call's wanted rows.
#pragma once

#include "het_tf/kernels/cuda/batch.h"
#include "het_tf/kernels/cuda/probe.h"
#include "het_tf/kernels/cuda/tile.h"

namespace het::dev {

// On one lane. The caller must pass each row once.
HET_DEV void AppendWanted(const WantedView& wanted, uint32_t use, int64_t key, int64_t base) {
  const uint32_t at = Tile<8>::Append(static_cast<uint32_t*>(wanted.n));
  static_cast<uint32_t*>(wanted.uses)[at] = use;
  static_cast<int64_t*>(wanted.keys)[at] = key;
  static_cast<int64_t*>(wanted.bases)[at] = base;
}

// On one lane, for each position that wants the row. Returns true for the first.
template <typename Batch>
HET_DEV bool WantOnce(const WantedView& wanted, const Batch& batch, uint64_t position, const Position& p,
                      int64_t base) {
  uint64_t* set = wanted.set;
  const uint64_t own = uint64_t{wanted.visit} << 32 | position;
  for (uint32_t at = static_cast<uint32_t>(HashInCall(p.use, p.key)) & wanted.mask;;
       at = (at + 1) & wanted.mask) {
    uint64_t other = AtomicLoad(&set[at]);
    if (other >> 32 != wanted.visit) {
      const uint64_t was = AtomicCas(&set[at], other, own);
      if (was == other) break;
      other = was;  // nobody but this call writes here
    }
    const Position q = PositionAt(batch, static_cast<uint32_t>(other));
    if (q.key == p.key && q.use == p.use) return false;
  }
  AppendWanted(wanted, p.use, p.key, base);
  return true;
}

}  // namespace het::dev
