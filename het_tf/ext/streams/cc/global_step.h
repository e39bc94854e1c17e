// One step of all workers, as one of them sees it: the keys that other workers use, and the worker that
// updates a shared key. Every worker of a placed stream reads all of it, so no message and no directory of
// copies is needed.
//
//   ids of all workers ──sorted──► unique keys of each table and partition, with their users
//                                  └► others: the keys that another worker uses
//
// Rows are then synchronised on demand (engine/window.h): a worker sends a row when another worker uses it
// in the next step, and fetches rows that others have updated.
//
// For example, three workers use the keys 0: [7, 8]  1: [8, 9]  2: [7, 8]. For worker 0 the others' keys are
// 7, 8 and 9. If gradients are summed before a single update, one of its users owns a key: worker 1 owns 9,
// and the hash of 8 chooses 0, 1 or 2. If it chooses 0, the copy of worker 0 stays up to date.
//
// Memory: 16 bytes for each key of another worker.
#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <map>
#include <vector>

#include "het_tf/core/base/alloc.h"
#include "het_tf/core/base/hash.h"
#include "het_tf/core/client/cached_rows.h"
#include "het_tf/core/plan/batch_plan.h"

namespace het {

class GlobalStep {
 public:
  // The places of a pass are consecutive numbers with the same PassOf, from 1.
  static uint64_t PassOf(uint64_t place) { return place >> 40; }
  static uint64_t InPass(uint64_t place) { return place & ((uint64_t{1} << 40) - 1); }

  struct Ids {
    // Features of all workers, worker after worker.
    Span<const FeatureIds> features;
    // For each feature and each worker: the end of its ids.
    std::vector<Span<const int64_t>> ends;
    uint64_t place = 0;   // number of the step in the stream; not 0, consecutive within a pass (PassOf)
    uint32_t worker = 0;  // this worker
    bool summed = false;  // gradients are summed over the workers: a key has one update in a step
  };

  // `tables`: the tables' ids, indexed as in the features. `scratch` sorts the ids. Throws std::bad_alloc.
  GlobalStep(const Ids& ids, const std::vector<uint64_t>& tables, const PartitionId& store,
             BatchPlan* scratch);

  uint64_t place() const { return place_; }
  // Returns the keys that another worker uses, in order of partition.
  const Vector<OthersKeys>& others() const { return others_; }
  // Returns the keys that another worker updates: copies here are out of date after the step.
  const Vector<OthersKeys>& outdated() const { return outdated_; }
  // Returns the worker that updates a key of this worker's batch, if gradients are summed.
  uint32_t OwnerOf(uint64_t table, Key key) const;

 private:
  // A bit set of workers for each key.
  struct Users {
    size_t words;
    Vector<uint64_t> bits;

    void Add(size_t key, uint32_t worker) { bits[key * words + worker / 64] |= uint64_t{1} << worker % 64; }
    bool Has(size_t key, uint32_t worker) const {
      return (bits[key * words + worker / 64] >> worker % 64 & 1) != 0;
    }
    uint32_t Count(size_t key) const;
    // Returns user number `which` of a key.
    uint32_t At(size_t key, uint32_t which) const;
  };
  using Owners = boost::unordered_flat_map<Key, uint32_t, KeyHash, std::equal_to<Key>,
                                           Allocator<std::pair<const Key, uint32_t>>>;

  Users UsersOf(const Ids& ids, const BatchPlan& plan, const BatchPlan::Group& group) const;
  void Add(const Ids& ids, uint64_t table, const BatchPlan& plan, const BatchPlan::Group& group);

  const uint64_t place_;
  const uint32_t worker_;
  Vector<Key> keys_;  // for the spans of others_ and outdated_; each group's outdated keys come first
  Vector<uint64_t> hashes_;
  Vector<OthersKeys> others_, outdated_;
  std::map<uint64_t, Owners> owners_;  // by table, for the keys that this worker shares
};

}  // namespace het
