// Layout maps a row to its partition: all code that routes keys uses it.
//
// A table is in a *group* of partitions, one in each stride of them:
//
//   24 partitions, a group of 8, table % 3 == 1:   . x . | . x . | . x . | ... | . x .
//
// So a partition has the rows of few tables, and a step of many small ones sends it few parts. A group of 8
// is spread evenly over 1, 2, 4 or 8 shards; a table on more shards needs more partitions. With at most 16
// partitions a table is in all of them. Raise kRule when you change the rule.
#pragma once

#include <algorithm>

#include "het_tf/core/base/hash.h"
#include "het_tf/core/wire/ids.h"

namespace het {

struct TableLayout {
  uint32_t first = 0;  // the first partition
  uint32_t stride = 1;
  uint32_t group = 1;
  uint64_t hash_seed = 0;

  uint32_t partitions() const { return stride * group; }  // of the store
  bool Has(uint32_t partition) const { return partition % stride == first; }
  HET_HOST_DEVICE uint64_t Hash(Key key) const { return HashKey(key, hash_seed); }
  // Returns the partition of the row whose key has this hash; `group` must be at most 65536.
  HET_HOST_DEVICE uint32_t Of(uint64_t hash) const {
    return first + stride * static_cast<uint32_t>((hash >> 16 & 0xffff) * group >> 16);
  }
  HET_HOST_DEVICE uint32_t OfKey(Key key) const { return Of(Hash(key)); }
};

class Layout {
 public:
  static constexpr uint32_t kRule = 2;

  Layout(uint32_t partitions, uint64_t hash_seed)
      : group_(GroupOf(partitions)), stride_(partitions / group_), hash_seed_(hash_seed) {}
  // The layout of the store that the partition belongs to.
  explicit Layout(const PartitionId& id) : Layout(id.count, id.hash_seed) {}

  uint64_t Hash(Key key) const { return HashKey(key, hash_seed_); }
  TableLayout OfTable(uint64_t table) const {
    return {static_cast<uint32_t>(table % stride_), stride_, group_, hash_seed_};
  }
  uint32_t Of(uint64_t table, uint64_t hash) const { return OfTable(table).Of(hash); }
  uint32_t OfKey(uint64_t table, Key key) const { return Of(table, Hash(key)); }
  uint32_t partitions() const { return stride_ * group_; }

 private:
  // Returns the least divisor of `partitions` that is at least 8 and at least an eighth of them.
  static uint32_t GroupOf(uint32_t partitions) {
    uint32_t group = partitions <= 16 ? partitions : std::max(8u, partitions / 8);
    while (partitions % group != 0) ++group;
    return group;
  }

  uint32_t group_;
  uint32_t stride_;
  uint64_t hash_seed_;
};

}  // namespace het
