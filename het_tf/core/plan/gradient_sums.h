// Gradients that N workers sum before one of them updates the row (docs/protocol.md, "Several workers").
//
// Every key has an owner: a worker chosen by the key's hash or, if the step's users are known, one of them.
// In a step each worker sums its gradients per unique key (Steps::SumKept), packs the sums by owner
// (PackSums: one part for every worker), and exchanges the parts all to all. Each owner adds the
// parts in the order of the workers (MergeSums) and ticks once (Steps::ApplySums).
//
// The same exchange makes workers agree on a step. Every part carries its sender's status: when one failed,
// all of them do, and no row has changed anywhere. A part with only a status is a few bytes, so a worker with
// an error, or with an empty batch, still takes part. And it carries the batch of the stream that chose the
// owners: a restored iterator has no plan for some batches, on some workers; these may choose others.
//
// One process with the whole batch would tick the keys of every feature whose gradient is not all zero. A
// feature may be all zero on some workers only, so its keys are sent too, without gradients.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "het_tf/core/base/bytes.h"
#include "het_tf/core/base/hash.h"
#include "het_tf/core/base/span.h"
#include "het_tf/core/base/status.h"
#include "het_tf/core/wire/ids.h"

namespace het {

struct Step;
struct Table;

struct GradientSums {
  struct OfTable {
    uint32_t dim = 0;
    // Keys that get a tick, unique, with their sums: dim floats a key.
    Vector<Key> keys;
    Vector<uint32_t> owners;
    Vector<float> sums;
    // Other keys of features whose gradient is all zero here, unique in each feature.
    Vector<Key> idle_keys;
    Vector<uint32_t> idle_owners;
    Vector<uint32_t> idle_features;
  };
  std::vector<OfTable> tables;
  Vector<uint8_t> active;  // for each feature: its gradient is not all zero
  uint64_t planned = 0;    // number of the batch in its pass; 0: the hash chooses the owners

  // Adds another step's sums times a factor. `table_of`: the number here of each of its tables; kNoTable: its
  // keys are left out. Its features follow those that are here.
  static constexpr uint32_t kNoTable = ~uint32_t{0};
  void Add(const GradientSums& other, Span<const uint32_t> table_of, float factor);
};

// Maps a key to its owner. The bits of the hash that choose the partition (wire/layout.h) also choose the
// worker, so that neighbouring partitions belong to one worker, and each pushes to few.
struct Owners {
  uint32_t workers;
  uint64_t planned = 0;                                                // as GradientSums::planned
  std::function<uint32_t(uint64_t table, Key key)> of_step = nullptr;  // null: by hash

  uint32_t Of(uint64_t table, Key key, uint64_t hash) const;
};

// Sets *sums, except the owners, from the SumGradients of a step with these tables.
void CollectSums(Span<const std::shared_ptr<Table>> tables, Step* step, GradientSums* sums);
// Sets the owners of all keys. `store`: any of its partitions.
void SetOwners(Span<const std::shared_ptr<Table>> tables, const PartitionId& store, const Owners& owners,
               GradientSums* sums);

// Appends the parts for `workers` workers to `bytes`; splits[w] is the length of worker w's part. `error`:
// this worker's status; sums are used only if it is OK. `signature` identifies the call, so that layers
// called in different orders are not mixed up. Throws std::bad_alloc. ResourceExhausted: a part is over 2
// GiB; then all parts carry this error.
Status PackSums(const Status& error, const GradientSums& sums, uint64_t signature, uint32_t workers,
                Bytes* bytes, Vector<int32_t>* splits);

// The sums of all workers' parts for one owner. A key occurs once for each sender, in worker order.
struct MergedSums {
  struct OfTable {
    Vector<Key> keys;
    Vector<float> sums;
    bool active = false;  // the table gets a tick, here or at another owner
  };
  std::vector<OfTable> tables;
};

// Facts from the call's specs: dim of each table, table of each feature.
struct SumsLayout {
  Vector<uint32_t> dims;
  Vector<uint32_t> table_of_feature;
  uint64_t signature = 0;
  uint64_t layer = 0;  // of the gradients; 0: there are none
};

// Returns the first worker's error, with its rank; InvalidArgument goes before others, which may follow from
// it. FailedPrecondition: another signature; Internal: the bytes are not valid parts. Throws std::bad_alloc.
Status MergeSums(const SumsLayout& layout, Span<const uint8_t> bytes, Span<const int32_t> lengths,
                 MergedSums* merged);

}  // namespace het
