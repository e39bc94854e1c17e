// Chooses the worker that takes a sample: the last user of its rows (Herald, NSDI 2024).
//
// Purpose: a worker's cache holds the rows that the worker used. Samples of a graph share rows with their
// neighbourhood, which no field names, so the rows decide. No cache is asked and no plan is sent: every
// worker reads the same stream, runs this rule and gets the same answer, bit for bit.
//
//   score[i][w]   keys of sample i whose last user is w
//   regret[i]     best score less the second best
//   order         by regret, largest first, then as they come: each sample goes to its best worker among
//                 those with fewer than `batch`; ties go to the first of t mod W, t mod W + 1, ... in batch t
//   last user     of every key of the batch: its worker; none if several workers use it
//
// Example: 2 workers of 1 sample. Batch 0 is {a, b}, {c, d}: no key is known, worker 0 takes the first
// sample, worker 1 the second. Batch 1 is {c, x}, {b, c}: scores are [0, 1] and [1, 1], regrets 1 and 0. The
// first sample goes to worker 1, the second to worker 0. Both use c, so it has no last user from then on.
//
// Memory: kSlots slots of 4 bytes, 16 MB, owned by the caller: the rule's whole state. A key's upper 22 bits
// choose its slot; its lower 16 bits tell it from other keys there, and the newest key replaces the old one.
// So which keys are forgotten depends only on the stream. If all caches together hold a million rows, one row
// in five shares its slot; above ten million most do, and the rule knows only recent keys.
//
// Cost: three probes a key and W counters a sample. The op, which copies the slots too, takes 3 ms for 8
// workers of 128 samples of 61 ids, and 6 ms for 8 of 1,024 of 26. If all samples share their frequent rows
// (click logs), a good field places as well and costs nothing.
//
// Not thread-safe; only slots and number carry over from one batch to the next.
#pragma once

#include <cstdint>

#include "het_tf/core/base/alloc.h"
#include "het_tf/core/base/span.h"
#include "het_tf/core/base/status.h"

namespace het {

class Location {
 public:
  static constexpr uint64_t kNoKey = 0;  // pads samples with fewer keys
  static constexpr size_t kSlots = size_t{1} << 22;
  static constexpr size_t kMostWorkers = 0xfffe;

  // 1 to kMostWorkers workers, of at least 1 sample each.
  Location(size_t workers, size_t batch);

  // Places a global batch. InvalidArgument, with nothing changed: the keys are not those of workers * batch
  // samples of one width, or there is not one owner a sample. Args:
  //   number  the batch's index t in its pass, from 0.
  //   keys    [workers * batch][width], hashes of table and id.
  //   slots   [kSlots], 0 before the first batch: (lower bits of a key) << 16 | last user + 1, 0 for none.
  //   owners  [workers * batch]: set to the worker of each sample.
  Status Place(uint64_t number, Span<const uint64_t> keys, Span<uint32_t> slots, Span<int64_t> owners);

 private:
  void Score(Span<const uint64_t> keys, Span<const uint32_t> slots);
  void SortByRegret();
  void Assign(uint64_t number, Span<int64_t> owners);

  size_t workers_, batch_;
  Vector<uint32_t> scores_;           // [samples][workers]
  Vector<uint32_t> regrets_, order_;  // [samples]
};

}  // namespace het
