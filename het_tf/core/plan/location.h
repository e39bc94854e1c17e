// Which worker takes a sample: the one that used its rows last (Herald, NSDI 2024; docs/adr/0028).
//
// What for: a worker's cache has what the worker used. Samples of a graph share rows with their
// neighbourhood, which no field names; here the rows themselves say where a sample belongs. No cache is asked
// and no plan is sent: every worker reads the same stream, runs this rule and gets the same answer, bit for
// bit. Its twin is het_tf/python/placement/location.py, for het-data, which runs without TensorFlow.
//
//   score[i][w]   keys of sample i whose last user is w
//   regret[i]     best score less the second best
//   by regret, largest first, and then as they come, each sample goes to the worker of its best score among
//   those that have fewer than `batch`; of equal ones to the first of t mod W, t mod W + 1, ... in batch t
//   last user     of every key of the batch: the worker that has it now; of several workers: nobody
//
// Example: 2 workers of 1 sample. Batch 0 is {a, b}, {c, d}: no key is known, worker 0 takes the first
// sample, worker 1 the second. Batch 1 is {c, x}, {b, c}: scores are [0, 1] and [1, 1], regrets 1 and 0. The
// first goes to worker 1, the second to worker 0, and c, which both use, has no last user from then on.
//
// Memory: kSlots slots of 4 bytes, 16 MB, all that the rule knows; the caller has them. A key has one slot,
// by its upper 22 bits; its lower 16 bits tell it from others that have the same one, and the newest takes
// it. So a key is forgotten when a newer one takes its slot: that depends on the stream alone, neither on
// time nor on a cache. Caches that hold a million rows together have one row in five in a slot with another;
// of more than ten million most are, and the rule knows what came lately.
//
// Cost: three probes a key and W counters a sample. The op, which copies the slots too, takes 3 ms for 8
// workers of 128 samples of 61 ids, and 6 ms for 8 of 1,024 of 26. Where all samples share their frequent
// rows (click logs), a good field places as well and costs nothing.
//
// Not thread-safe; slots and number are all that goes from one batch to the next.
#pragma once

#include <cstdint>

#include "het_tf/core/base/alloc.h"
#include "het_tf/core/base/span.h"
#include "het_tf/core/base/status.h"

namespace het {

class Location {
 public:
  static constexpr uint64_t kNoKey = 0;  // fills up a sample that has fewer keys than others
  static constexpr size_t kSlots = size_t{1} << 22;
  static constexpr size_t kMostWorkers = 0xfffe;

  // 1 to kMostWorkers workers, of 1 sample or more each.
  Location(size_t workers, size_t batch);

  // Places a global batch. InvalidArgument, and nothing has changed: the keys are not those of workers *
  // batch samples of one width, or there is not an owner for each. Args:
  //   number  of the batch in its pass, from 0: t.
  //   keys    [workers * batch][width], hashes of table and id.
  //   slots   [kSlots], 0 before the first batch: (lower bits of a key) << 16 | last user + 1, 0 for nobody.
  //   owners  [workers * batch]: gets the worker of each sample.
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
