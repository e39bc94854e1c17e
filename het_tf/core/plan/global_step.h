// One step of all workers, as one of them sees it: the keys that others use in it, and which worker updates a
// key that several use. Every worker of a placed stream reads all of it, so nobody has to be asked, and there
// is no directory of copies.
//
//   ids of all workers ──sorted──► unique keys of each table and partition, with their users
//                                  └► others: the keys that another worker uses
//
// Steps are then synchronised on demand (engine/on_demand.h): a worker sends a row when another one uses it
// in the next step, and fetches the rows that another one has updated.
//
// For example, three workers use the keys 0: [7, 8]  1: [8, 9]  2: [7, 8]. Worker 0 sees 7, 8 and 9 as the
// others' keys. Where gradients are summed before a single update, one of its users owns a key: of 9 that is
// worker 1; of 8 it is 0, 1 or 2, by the key's hash. If it is 0, the copy of worker 0 stays up to date.
//
// Cost: 16 bytes for each key of the others.
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
  struct Ids {
    // Of all workers, worker after worker.
    Span<const FeatureIds> features;
    // For each feature, for each worker: where its ids end.
    std::vector<Span<const int64_t>> ends;
    uint64_t place = 0;   // of the step in the stream, not 0; that of the next step of a pass is the next one
    uint32_t worker = 0;  // this one
    bool summed = false;  // gradients are summed over the workers, and a key has one update in a step
  };

  // `tables`: ids of its tables, by their number in the features. `scratch`: sorts the ids. Throws
  // std::bad_alloc.
  GlobalStep(const Ids& ids, const std::vector<uint64_t>& tables, const PartitionId& store,
             BatchPlan* scratch);

  // The keys that another worker uses, in order of partition.
  const Vector<OthersKeys>& others() const { return others_; }
  // Those of them that another worker updates: copies here are out of date after the step.
  const Vector<OthersKeys>& outdated() const { return outdated_; }
  // Which worker updates a key of this worker's batch, where gradients are summed.
  uint32_t OwnerOf(uint64_t table, Key key) const;

 private:
  // One bit for each worker.
  struct Users {
    size_t words;
    Vector<uint64_t> bits;

    void Add(size_t key, uint32_t worker) { bits[key * words + worker / 64] |= uint64_t{1} << worker % 64; }
    bool Has(size_t key, uint32_t worker) const {
      return (bits[key * words + worker / 64] >> worker % 64 & 1) != 0;
    }
    uint32_t Count(size_t key) const;
    // The user number `which` of a key.
    uint32_t At(size_t key, uint32_t which) const;
  };
  using Owners = boost::unordered_flat_map<Key, uint32_t, KeyHash, std::equal_to<Key>,
                                           Allocator<std::pair<const Key, uint32_t>>>;

  Users UsersOf(const Ids& ids, const BatchPlan& plan, const BatchPlan::Group& group) const;
  void Add(const Ids& ids, uint64_t table, const BatchPlan& plan, const BatchPlan::Group& group);

  const uint32_t worker_;
  Vector<Key> keys_;  // what others_ and outdated_ name; of a group those come first that are out of date
  Vector<uint64_t> hashes_;
  Vector<OthersKeys> others_, outdated_;
  std::map<uint64_t, Owners> owners_;  // by table, of the keys that this worker shares
};

}  // namespace het
