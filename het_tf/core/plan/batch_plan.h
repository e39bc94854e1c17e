// One step's ids, sorted out: which keys occur, where each occurs, and to which partition it belongs.
//
//   ids of all features ──hash──► scattered by partition (and table) ──► unique keys of each group + inverse
//
// A *group* is the keys of one table in one partition. Everything after the scatter is local to a group: its
// unique keys fit in the first levels of the CPU's cache, different groups run on different threads without a
// lock, and the frames of a remote partition need just this order. Within a group entries stay in the order
// of the step (features in order, ids in order), so sums over the occurrences of a key do not depend on the
// number of threads.
//
// A lookup builds the plan; the HetApplyGrad of the same token uses it again. Plans are recycled between
// steps: their buffers are megabytes.
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
  uint32_t table = 0;  // its table, as a number within this call
  Span<const int64_t> ids;
  std::optional<Key> padding_id;  // positions with it read zeros and learn nothing
};

class BatchPlan {
 public:
  static constexpr size_t kMaxIds = 0xfffffffeu;  // of a step, all features together

  struct Entry {
    uint32_t feature;
    uint32_t index;  // into the feature's ids
  };
  struct Group {
    uint32_t table = 0;
    uint32_t partition = 0;
    size_t first = 0;  // of its entries, and of its unique keys
    size_t entries = 0;
    size_t uniques = 0;       // <= entries
    uint64_t generation = 0;  // of the store when its rows were found; 0: they were not
  };

  // Scatter sorts ids into groups; Unique then finds the unique keys of one group. Groups may be done side by
  // side, each best by the thread that goes on with it while it is in the CPU's caches. Both throw
  // std::bad_alloc. `tables`: the ids of the tables, by the numbers that features give them.
  void Scatter(Span<const FeatureIds> features, Span<const uint64_t> tables, const PartitionId& store,
               ThreadPool* pool);
  void Unique(const Group& group) { Unique(&groups_[NumberOf(group)]); }
  void UniqueAll(ThreadPool* pool);
  // Both.
  void Build(Span<const FeatureIds> features, Span<const uint64_t> tables, const PartitionId& store,
             ThreadPool* pool);

  // Groups in order of (partition, table); those of one partition are neighbours. Empty groups are included.
  Span<const Group> groups() const { return groups_; }
  // Which of them this one is.
  size_t NumberOf(const Group& g) const { return static_cast<size_t>(&g - groups_.data()); }
  size_t entries() const { return total_; }
  uint32_t tables() const { return tables_; }

  // Of a group, arrays of `entries` or `uniques` elements. The key of entry e is keys(g)[inverse(g)[e]].
  const Entry* entry(const Group& g) const { return entries_.data() + g.first; }
  const uint32_t* inverse(const Group& g) const { return inverse_.data() + g.first; }
  const Key* keys(const Group& g) const { return keys_.data() + g.first; }
  const uint64_t* hashes(const Group& g) const { return hashes_.data() + g.first; }
  // Where each unique key's row is: filled in by whoever owns the rows.
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
  Buffer<uint16_t> partition_of_;  // of each id of the step, features in order
  Buffer<size_t> offsets_;
};

}  // namespace het
