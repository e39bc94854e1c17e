// Layout says which partition of a store a row belongs to: all that route keys ask it.
#pragma once

#include "het_tf/core/base/hash.h"
#include "het_tf/core/wire/ids.h"

namespace het {

class Layout {
 public:
  Layout(uint32_t partitions, uint64_t hash_seed) : partitions_(partitions), hash_seed_(hash_seed) {}
  // Of the store that the partition belongs to.
  explicit Layout(const PartitionId& id) : Layout(id.count, id.hash_seed) {}

  uint32_t partitions() const { return partitions_; }
  uint64_t Hash(Key key) const { return HashKey(key, hash_seed_); }
  // The partition of the row whose key has this hash. All tables lie alike.
  uint32_t Of(uint64_t hash) const { return PartitionOf(hash, partitions_); }
  uint32_t OfKey(Key key) const { return Of(Hash(key)); }

 private:
  uint32_t partitions_;
  uint64_t hash_seed_;
};

}  // namespace het
