// The cached rows of one table in a serving process, each with the time at which it last matched the store.
//
// It is simpler than a worker's cache (table_cache.h): rows are values without slots, never dirty and never
// pinned. But many threads read it at once, so it is split into shards by the key's hash, each with a mutex
// that is held while one row is found and copied.
//
//   life   grows when older rows become invalid, because the table was loaded or the partition restarted.
//          A row of another life counts as absent.
//   when   the latest time at which the row is known to have matched the store: the time of sending the
//          request whose answer brought or confirmed it. Of two answers the later request's counts.
//
// A full shard evicts a row that was not read since the hand last passed it (CLOCK). Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "het_tf/core/row/row_store.h"

namespace het::serve {

class OnlineCache {
 public:
  // `capacity` is in rows, rounded up to a multiple of the shards; 0 disables the cache.
  OnlineCache(size_t dim, uint64_t hash_seed, size_t capacity);

  enum class Found { kAbsent, kOld, kFresh };
  // Copies the row to `value` and its clock to *clock, unless it is absent. Fresh: its `when` is at least
  // `since`.
  Found Read(Key key, uint64_t hash, uint32_t life, double since, float* value, Clock* clock);
  // Keeps the store's row of time `when`, unless a later one is here. Throws std::bad_alloc: it is not kept.
  void Put(Key key, uint64_t hash, uint32_t life, double when, Clock clock, const float* value);
  // The store answered that the row with this clock has not changed.
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

  // Uses bits that neither the index (key_index.h) nor the partitions use.
  Shard& ShardOf(uint64_t hash) const { return *shards_[(hash >> 8) % kShards]; }
  void Evict(Shard* shard);

  const size_t dim_;
  const size_t capacity_;  // of a shard
  std::vector<std::unique_ptr<Shard>> shards_;
};

}  // namespace het::serve
