// Rows of one width: an index and a slab. A partition keeps a table's rows in one, a cache its lines.
//
//   row r = meta(r): {key, clock, last_used, count, flags}   and   data(r): row_floats() floats
//
// The slab is a list of chunks of equal size (about 1 MB), so it grows without copying; only the first chunk
// grows by doubling, so that a table of three rows takes three rows' memory. Chunks are allocated in blocks:
// of one chunk or, in a large table, of one eighth of the existing chunks, which makes 2 MB pages possible.
// At most a chunk or an eighth is unused. A row's number is stable while the row exists; pointers are stable
// until the next Insert.
//
// Not thread-safe; the owner locks. Different threads may write different rows at the same time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "het_tf/core/base/hash.h"
#include "het_tf/core/base/prefetch.h"
#include "het_tf/core/base/span.h"
#include "het_tf/core/row/segmented_index.h"

namespace het {

using Clock = int64_t;

// A row that is created after removals has a clock that begins at a multiple of this (store/shard.h), so that
// no earlier copy looks fresh.
constexpr Clock kBirthGap = Clock{1} << 20;

// Returns the ticks of a row with this clock, its *age*. After every kBirthGap ticks a row briefly counts as
// young again, which costs some bytes and shortens some steps.
inline Clock AgeOf(Clock clock) { return clock & (kBirthGap - 1); }
// Returns the clock of a row of age 0 that takes the place of rows with clocks up to this one.
inline Clock BornAfter(Clock clock) { return (clock / kBirthGap + 2) * kBirthGap; }

struct RowMeta {
  Key key;
  Clock clock;         // ticks that the row contains
  uint32_t last_used;  // time of the last tick, in seconds since 1970 (limits.h)
  uint16_t count;      // ticks, saturating
  uint16_t flags;      // bit 0: live; the store's owner may use the others
};
static_assert(sizeof(RowMeta) == 24);

// Counts one more tick of the row, at that time.
inline void CountTick(uint32_t now, RowMeta* meta) {
  ++meta->clock;
  if (meta->count != 0xffff) ++meta->count;
  meta->last_used = now > meta->last_used ? now : meta->last_used;
}

class RowStore {
 public:
  static constexpr uint16_t kLive = 1;

  RowStore(size_t row_floats, uint64_t hash_seed);
  ~RowStore();
  RowStore(const RowStore&) = delete;
  RowStore& operator=(const RowStore&) = delete;

  size_t row_floats() const { return row_floats_; }
  size_t size() const { return index_.size(); }
  // All row numbers are below this.
  uint32_t end() const { return end_; }
  size_t bytes() const;
  uint64_t Hash(Key key) const { return HashKey(key, hash_seed_); }

  RowMeta& meta(uint32_t row) { return chunks_[row >> shift_].meta[row & mask_]; }
  const RowMeta& meta(uint32_t row) const { return chunks_[row >> shift_].meta[row & mask_]; }
  float* data(uint32_t row) { return chunks_[row >> shift_].data + (row & mask_) * row_floats_; }
  const float* data(uint32_t row) const { return chunks_[row >> shift_].data + (row & mask_) * row_floats_; }
  bool live(uint32_t row) const { return (meta(row).flags & kLive) != 0; }

  uint32_t Find(Key key, uint64_t hash) const {
    return index_.Find(hash, [&](uint32_t row) { return meta(row).key == key; });
  }
  uint32_t Find(Key key) const { return Find(key, Hash(key)); }

  // Finds n keys at once: rows[i] for keys[i], kNoRow if absent. Memory accesses for different keys overlap,
  // and the first `floats` floats of each found row are being prefetched when it returns.
  void FindBatch(const Key* keys, const uint64_t* hashes, size_t n, uint32_t* rows, size_t floats) const;
  void FindBatch(const Key* keys, const uint64_t* hashes, size_t n, uint32_t* rows) const {
    FindBatch(keys, hashes, n, rows, row_floats_);
  }

  // While this number stays, every row keeps its number. It is unique among stores.
  uint64_t generation() const { return generation_; }

  // Adds a row with clock, last_used and count 0; its data is uninitialised. `key` must be absent. Throws
  // std::bad_alloc and changes nothing then.
  uint32_t Insert(Key key, uint64_t hash);

  // Makes room for `more_rows` rows, in one piece: the slab and the index need not grow for them. Throws
  // std::bad_alloc and leaves the rows unchanged.
  void Reserve(size_t more_rows);
  void Prefetch(uint64_t hash) const { index_.Prefetch(hash); }
  void PrefetchRow(uint32_t row) const { PrefetchRow(row, row_floats_); }
  // Calls visit(meta, data) for those of the rows that are live. Their memory accesses overlap.
  template <typename Visit>
  void ForEachLive(Span<const uint32_t> rows, const Visit& visit) const {
    for (size_t i = 0; i < rows.size(); ++i) {
      if (i + kRowsAhead < rows.size()) PrefetchRow(rows[i + kRowsAhead], row_floats_);
      if (live(rows[i])) visit(meta(rows[i]), data(rows[i]));
    }
  }

  void Erase(uint32_t row);
  void Clear();

 private:
  struct Chunk {
    RowMeta* meta = nullptr;
    float* data = nullptr;
    uint32_t rows = 0;
  };

  // One allocation: the memory of one or several chunks.
  struct Block {
    RowMeta* meta = nullptr;
    float* data = nullptr;
    size_t rows = 0;
  };

  static constexpr size_t kRowsAhead = 16;
  void PrefetchRow(uint32_t row, size_t floats) const {
    het::Prefetch(&meta(row), 1);
    het::Prefetch(data(row), std::min<size_t>(floats * sizeof(float), 512));
  }
  void AddSpace();
  // `chunks` chunks of `rows` rows each, in one block.
  void AddChunks(size_t chunks, uint32_t rows);
  Block MakeBlock(size_t rows) const;
  void FreeBlock(const Block& block) const;

  size_t row_floats_;
  uint64_t hash_seed_;
  uint32_t shift_;
  uint32_t mask_;
  SegmentedIndex index_;
  Vector<Chunk> chunks_;
  Vector<Block> blocks_;
  uint32_t end_ = 0;  // rows [0, end_) have been handed out at least once
  uint32_t space_ = 0;
  uint64_t generation_;
  uint32_t free_head_ = kNoRow;  // erased rows, linked through their meta's key
};

}  // namespace het
