// Gradients that N workers sum before one of them updates the row (docs/protocol.md, "Several workers").
//
// Every key has an owner: a worker, by the key's hash, or where rows travel on demand one of those that use
// the key in the step (global_step.h). In a step each worker sums its gradients per unique key
// (Steps::SumGradients), packs the sums by owner (PackSums: one part for every worker), the parts are
// exchanged all to all by whoever can (Horovod), and each owner adds what it received in the order of the
// workers (MergeSums) and ticks once (Steps::ApplySums).
//
// A step is agreed upon by the same exchange. Every part says how its sender's step went: when one failed, or
// sits the step out because of its loss scale, all of them do, and no row has changed anywhere. A part that
// is all there is of an error is a few bytes, so a worker with an error, or with an empty batch, still takes
// part.
//
// One process that sees the whole batch ticks the keys of every feature whose gradient is not all zero. A
// feature may be all zero here and not there, so the keys of such a feature travel too, without gradients.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "het_tf/core/base/bytes.h"
#include "het_tf/core/base/hash.h"
#include "het_tf/core/base/span.h"
#include "het_tf/core/base/status.h"
#include "het_tf/core/plan/global_step.h"

namespace het {

struct BatchCall;
struct Step;

struct GradientSums {
  struct OfTable {
    uint32_t dim = 0;
    // Keys that get a tick, each once, with their sums: dim floats a key.
    Vector<Key> keys;
    Vector<uint32_t> owners;
    Vector<float> sums;
    // Other keys of features whose gradient is all zero here, each once a feature.
    Vector<Key> idle_keys;
    Vector<uint32_t> idle_owners;
    Vector<uint32_t> idle_features;
  };
  std::vector<OfTable> tables;
  Vector<uint8_t> active;  // for each feature: its gradient is not all zero
  bool skip = false;       // the gradient overflowed under its loss scale: this step is left out
};

// The worker that owns a key. The bits of its hash that choose its partition (wire/layout.h) choose the
// worker too, so that neighbouring partitions belong to one worker, and each pushes to few.
struct Owners {
  uint32_t workers;
  std::shared_ptr<const GlobalStep> global;  // null: the hash says it

  uint32_t Of(uint64_t table, Key key, uint64_t hash) const;
};

// *sums = what the step's SumGradients has left in it: sums->skip says whether it was left out.
void CollectSums(const BatchCall& call, Step* step, const Owners& owners, GradientSums* sums);

// Appends the parts of `workers` workers to `bytes`; splits[w] is the length of that for worker w. `error`:
// how the step went here; unless it is OK, sums are not looked at. `signature` names the call: layers that
// were called in different orders must not be mixed up. Throws std::bad_alloc. ResourceExhausted: a part is
// over 2 GiB; then every part says so.
Status PackSums(const Status& error, const GradientSums& sums, uint64_t signature, uint32_t workers,
                Bytes* bytes, Vector<int32_t>* splits);

// The sums of all workers' parts for one owner. A key occurs once for each worker that sent it, in the order
// of the workers.
struct MergedSums {
  struct OfTable {
    Vector<Key> keys;
    Vector<float> sums;
    bool active = false;  // the table gets a tick, if not here then at another owner
  };
  std::vector<OfTable> tables;
  bool skip = false;
};

// What the call has, in its specs: dim of each table, table of each feature.
struct SumsLayout {
  Vector<uint32_t> dims;
  Vector<uint32_t> table_of_feature;
  uint64_t signature = 0;
};

// The error of the first worker that had one, with its rank; FailedPrecondition for another signature,
// Internal for bytes that are no parts. Throws std::bad_alloc.
Status MergeSums(const SumsLayout& layout, Span<const uint8_t> bytes, Span<const int32_t> lengths,
                 MergedSums* merged);

}  // namespace het
