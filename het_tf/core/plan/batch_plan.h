// One step's ids, sorted: the unique keys, the positions of each, and its partition.
//
//   ids of all features ──hash──► scattered by partition (and table) ──► unique keys of each group + inverse
//
// A *group* is the keys of one table in one partition. All work after the scatter is local to a group: its
// unique keys fit in the L1 and L2 caches, groups run on different threads without locks, and frames to a
// remote partition need this order. Entries of a group stay in the order of the step (features in order, ids
// in order), so sums over the occurrences of a key do not depend on the number of threads.
//
// A lookup builds the plan, and the HetApplyGrad of the same token uses it again. Plans are recycled, since
// their buffers are megabytes.
#pragma once

#include <cstdint>
#include <optional>

#include "het_tf/core/base/buffer.h"
#include "het_tf/core/base/hash.h"
#include "het_tf/core/base/parallel.h"
#include "het_tf/core/base/span.h"
#include "het_tf/core/wire/ids.h"

namespace het {

// One feature of an op call.
struct FeatureIds {
  uint32_t table = 0;  // index of its table in this call
  Span<const int64_t> ids;
  std::optional<Key> padding_id;  // its positions read zeros and learn nothing
};

class BatchPlan {
 public:
  static constexpr size_t kMaxIds = 0xfffffffeu;  // in a step, over all features

  struct Entry {
    uint32_t feature;
    uint32_t index;  // into the feature's ids
  };
  struct Group {
    uint32_t table = 0;
    uint32_t partition = 0;
    size_t first = 0;  // index of its first entry, and of its first unique key
    size_t entries = 0;
    size_t uniques = 0;       // <= entries
    uint64_t generation = 0;  // the store's when the rows were found; 0: not found yet
  };

  // Scatter sorts ids into groups; Unique then finds the unique keys of one group. Threads may do groups
  // concurrently, best the thread that goes on with a group while it is cached. Both throw std::bad_alloc.
  // `tables`: the tables' ids, indexed as in the features.
  void Scatter(Span<const FeatureIds> features, Span<const uint64_t> tables, const PartitionId& store,
               ThreadPool* pool);
  void Unique(const Group& group) { Unique(&groups_[NumberOf(group)]); }
  // Scatter, then Unique for all groups.
  void Build(Span<const FeatureIds> features, Span<const uint64_t> tables, const PartitionId& store,
             ThreadPool* pool);

  // Groups in order of (partition, table), empty ones included.
  Span<const Group> groups() const { return groups_; }
  // The index of `g` in groups().
  size_t NumberOf(const Group& g) const { return static_cast<size_t>(&g - groups_.data()); }
  size_t entries() const { return total_; }
  uint32_t tables() const { return tables_; }

  // Arrays of `entries` or `uniques` elements of a group. The key of entry e is keys(g)[inverse(g)[e]].
  const Entry* entry(const Group& g) const { return entries_.data() + g.first; }
  const uint32_t* inverse(const Group& g) const { return inverse_.data() + g.first; }
  const Key* keys(const Group& g) const { return keys_.data() + g.first; }
  const uint64_t* hashes(const Group& g) const { return hashes_.data() + g.first; }
  // The row of each unique key: set by the owner of the rows.
  uint32_t* rows(const Group& g) { return rows_.data() + g.first; }
  void set_generation(const Group& g, uint64_t generation) { groups_[NumberOf(g)].generation = generation; }

 private:
  void Unique(Group* group);

  uint32_t tables_ = 0;
  uint64_t hash_seed_ = 0;
  size_t total_ = 0;
  Vector<Group> groups_;
  Buffer<Entry> entries_;
  Buffer<uint32_t> inverse_;
  Buffer<Key> entry_keys_;
  Buffer<Key> keys_;
  Buffer<uint64_t> hashes_;
  Buffer<uint32_t> rows_;
  Buffer<uint16_t> partition_of_;  // for each id of the step, features in order
  Buffer<size_t> offsets_;
};

}  // namespace het
