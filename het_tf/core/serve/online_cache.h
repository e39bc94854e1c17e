// Rows of one table in a serving process, each with when it was last known to be the store's.
//
// It differs from a worker's cache (table_cache.h) in all that serving does not need: rows are values without
// slots, nothing is ever dirty, nobody pins. And in what it does: many threads read at once. So it is split
// into shards by the key's hash, each with a mutex that is held while one row is found and copied.
//
//   life   a number that grows when rows of before must not be used any more, because the table was loaded or
//          the partition came to life again. A row of another life is not there.
//   when   the latest moment at which the row is known to have been the store's: when the request went out
//          whose answer brought or confirmed it. Of two answers the one of the later request counts.
//
// A full shard lets go of a row that was not read since the hand passed it last (CLOCK). Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "het_tf/core/row/row_store.h"

namespace het::serve {

class OnlineCache {
 public:
  // `capacity` rows, rounded up to a multiple of the shards; 0: it keeps nothing.
  OnlineCache(size_t dim, uint64_t hash_seed, size_t capacity);

  enum class Found { kAbsent, kOld, kFresh };
  // Copies the row to `value` unless it is absent, and its clock to *clock. Fresh: its `when` is at least
  // `since`.
  Found Read(Key key, uint64_t hash, uint32_t life, double since, float* value, Clock* clock);
  // The store's row at `when` or later. Throws std::bad_alloc: then it is not kept.
  void Put(Key key, uint64_t hash, uint32_t life, double when, Clock clock, const float* value);
  // The store had no news for the row of that clock.
  void Confirm(Key key, uint64_t hash, uint32_t life, double when, Clock clock);

  size_t size() const;
  size_t bytes() const;
  uint64_t evicted() const;

 private:
  static constexpr size_t kShards = 64;

  struct Line {
    double when = 0;
    uint32_t life = 0;
    bool used = false;
  };
  struct Shard {
    Shard(size_t dim, uint64_t hash_seed) : rows(dim, hash_seed) {}
    mutable std::mutex mutex;
    RowStore rows;
    Vector<Line> lines;  // by row number
    uint32_t hand = 0;
    uint64_t evicted = 0;
  };

  // Bits that neither the index (key_index.h) nor the partitions use.
  Shard& ShardOf(uint64_t hash) const { return *shards_[(hash >> 8) % kShards]; }
  void Evict(Shard* shard);

  const size_t dim_;
  const size_t capacity_;  // of a shard
  std::vector<std::unique_ptr<Shard>> shards_;
};

}  // namespace het::serve
