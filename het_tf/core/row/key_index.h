// Maps keys to row numbers. The keys themselves are in the rows, so an entry costs five bytes: a row number
// and one byte of the hash.
//
// Compared with boost::unordered_flat_map: a third of the memory at the same speed (docs/adr/core.md, 3), and
// a bucket's address is known before the search, so that a batch can prefetch it.
//
//   bucket (64 bytes): [12 tags | overflow | 3 spare | 12 row numbers]
//
// A tag is 0 for an empty entry, else 8 bits of the hash. A key lives in its home bucket or, if that is full,
// in the next bucket with room; every full bucket that was passed counts it in `overflow`. A search ends at
// the first bucket whose overflow is 0, so removals leave no tombstones. A count that reaches 255 stays until
// the next growth: correct, but slower.
//
// Growth moves all keys at once: above some ten thousand take a SegmentedIndex. Not thread-safe; the owner
// locks.
#pragma once

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "het_tf/core/base/alloc.h"
#include "het_tf/core/base/huge_pages.h"

namespace het {

constexpr uint32_t kNoRow = 0xffffffffu;

class KeyIndex {
 public:
  KeyIndex() : buckets_(1) {}

  size_t size() const { return size_; }
  size_t bytes() const { return buckets_.size() * sizeof(Bucket); }

  void Prefetch(uint64_t hash) const { __builtin_prefetch(&buckets_[Home(hash)]); }

  // Returns the row that the hash probably belongs to, or kNoRow: only for prefetching the row.
  uint32_t Candidate(uint64_t hash) const {
    const Bucket& bucket = buckets_[Home(hash)];
    const uint32_t match = bucket.Match(Tag(hash));
    return match == 0 ? kNoRow : bucket.row[__builtin_ctz(match)];
  }

  // Returns the row for which is_key(row), or kNoRow. Calls is_key only for rows with an equal tag.
  template <typename IsKey>
  uint32_t Find(uint64_t hash, IsKey is_key) const {
    const uint8_t tag = Tag(hash);
    size_t at = Home(hash);
    size_t left = buckets_.size();
    do {
      const Bucket& bucket = buckets_[at];
      for (uint32_t match = bucket.Match(tag); match != 0; match &= match - 1) {
        const uint32_t row = bucket.row[__builtin_ctz(match)];
        if (is_key(row)) return row;
      }
      if (bucket.overflow == 0) return kNoRow;
      at = Next(at);
    } while (--left != 0);
    return kNoRow;
  }

  // Makes room for one more key, or `more`, so that the next Inserts cannot fail. Calls hash_of(row) for rows
  // that are already here. Throws std::bad_alloc and leaves the index unchanged.
  template <typename HashOf>
  void Reserve(HashOf hash_of, size_t more = 1) {
    const size_t capacity = buckets_.size() * kEntries;
    if (size_ + more <= capacity - capacity / 7) return;
    const size_t wanted =
        std::max(buckets_.size() + buckets_.size() / 2 + 1, (size_ + more) / kEntries * 7 / 6 + 2);
    KeyIndex larger;
    larger.buckets_.reserve(wanted);
    AdviseHugePages(larger.buckets_.data(), wanted * sizeof(Bucket));
    larger.buckets_.resize(wanted);
    ForEach(hash_of, [&](uint64_t hash, uint32_t row) { larger.Place(hash, row); });
    larger.buckets_.swap(buckets_);
  }

  // Calls visit(hash, row) for each key.
  template <typename HashOf, typename Visit>
  void ForEach(HashOf hash_of, Visit visit) const {
    for (const Bucket& bucket : buckets_) {
      for (uint32_t i = 0; i < kEntries; ++i) {
        if (bucket.tag[i] != 0) visit(hash_of(bucket.row[i]), bucket.row[i]);
      }
    }
  }

  // `row`'s key must be absent, and Reserve must have made room for it.
  void Insert(uint64_t hash, uint32_t row) {
    Place(hash, row);
    ++size_;
  }

  // `row` must be here, under this hash.
  void Erase(uint64_t hash, uint32_t row) {
    const uint8_t tag = Tag(hash);
    const size_t home = Home(hash);
    size_t at = home;
    for (;;) {
      Bucket& bucket = buckets_[at];
      for (uint32_t match = bucket.Match(tag); match != 0; match &= match - 1) {
        const uint32_t i = __builtin_ctz(match);
        if (bucket.row[i] != row) continue;
        bucket.tag[i] = 0;
        for (size_t passed = home; passed != at; passed = Next(passed)) {
          if (buckets_[passed].overflow != 255) --buckets_[passed].overflow;
        }
        --size_;
        return;
      }
      at = Next(at);
    }
  }

  void Clear() {
    buckets_.assign(1, Bucket());
    buckets_.shrink_to_fit();
    size_ = 0;
  }

 private:
  static constexpr uint32_t kEntries = 12;

  struct alignas(64) Bucket {
    uint8_t tag[kEntries] = {};
    uint8_t overflow = 0;
    uint8_t spare[3] = {};
    uint32_t row[kEntries] = {};

    // One bit for each entry whose tag equals `wanted`.
    uint32_t Match(uint8_t wanted) const {
#if defined(__SSE2__)
      const __m128i tags = _mm_loadu_si128(reinterpret_cast<const __m128i*>(tag));
      const __m128i same = _mm_cmpeq_epi8(tags, _mm_set1_epi8(static_cast<char>(wanted)));
      return static_cast<uint32_t>(_mm_movemask_epi8(same)) & ((1u << kEntries) - 1);
#else
      uint32_t mask = 0;
      for (uint32_t i = 0; i < kEntries; ++i) mask |= static_cast<uint32_t>(tag[i] == wanted) << i;
      return mask;
#endif
    }
  };
  static_assert(sizeof(Bucket) == 64);

  static uint8_t Tag(uint64_t hash) { return std::max<uint8_t>(1, static_cast<uint8_t>(hash)); }
  size_t Home(uint64_t hash) const { return ((hash >> 32) * buckets_.size()) >> 32; }
  size_t Next(size_t at) const { return at + 1 == buckets_.size() ? 0 : at + 1; }

  void Place(uint64_t hash, uint32_t row) {
    size_t at = Home(hash);
    for (;;) {
      Bucket& bucket = buckets_[at];
      if (const uint32_t empty = bucket.Match(0); empty != 0) {
        const uint32_t i = __builtin_ctz(empty);
        bucket.tag[i] = Tag(hash);
        bucket.row[i] = row;
        return;
      }
      if (bucket.overflow != 255) ++bucket.overflow;
      at = Next(at);
    }
  }

  Vector<Bucket> buckets_;
  size_t size_ = 0;
};

}  // namespace het
