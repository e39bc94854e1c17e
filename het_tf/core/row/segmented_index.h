// An index that grows without a long stop: one KeyIndex, or 256 from 80,000 keys on.
//
// A KeyIndex that grows moves all its keys, 40 to 60 ns each: half a second for ten million. Of 256
// *segments* each grows alone. A key's segment is 8 bits of its hash. Segments begin with different room, so
// that they grow one after another, and memory rises evenly with the keys.
//
// Not thread-safe; the owner locks.
#pragma once

#include <cmath>
#include <cstdint>

#include "het_tf/core/base/alloc.h"
#include "het_tf/core/row/key_index.h"

namespace het {

class SegmentedIndex {
 public:
  size_t size() const { return size_; }
  size_t bytes() const {
    size_t sum = one_.bytes();
    for (const KeyIndex& segment : segments_) sum += sizeof(KeyIndex) + segment.bytes();
    return sum;
  }

  // Calls use(of), where of(hash) is the KeyIndex for a hash. For loops: they ask once whether there are
  // segments.
  template <typename Use>
  void With(Use use) const {
    if (one()) {
      use([this](uint64_t) -> const KeyIndex& { return one_; });
    } else {
      use([this](uint64_t hash) -> const KeyIndex& { return segments_[SegmentOf(hash)]; });
    }
  }
  // As KeyIndex' functions.
  void Prefetch(uint64_t hash) const { Of(hash).Prefetch(hash); }
  template <typename IsKey>
  uint32_t Find(uint64_t hash, IsKey is_key) const {
    return Of(hash).Find(hash, is_key);
  }

  // Makes room for a key of this hash, so that its Insert cannot fail. Calls hash_of(row) for rows that are
  // already here. Throws std::bad_alloc; the keys are as before.
  template <typename HashOf>
  void Reserve(HashOf hash_of, uint64_t hash) {
    if (one() && size_ >= kMostInOne) Split(hash_of);
    Of(hash).Reserve(hash_of);
  }

  // The same for `more` keys: a segment gets room for its share and eight standard deviations of random
  // hashes.
  template <typename HashOf>
  void ReserveMany(HashOf hash_of, size_t more) {
    if (one() && size_ + more > kMostInOne) Split(hash_of);
    if (one()) return one_.Reserve(hash_of, more);
    const double share = static_cast<double>(more) / kSegments;
    const auto room = static_cast<size_t>(share + 8 * std::sqrt(share) + 8);
    for (KeyIndex& segment : segments_) segment.Reserve(hash_of, room);
  }

  // `row`'s key must be absent, and there must be room for it.
  void Insert(uint64_t hash, uint32_t row) {
    Of(hash).Insert(hash, row);
    ++size_;
  }

  // `row` must be here, under this hash.
  void Erase(uint64_t hash, uint32_t row) {
    Of(hash).Erase(hash, row);
    --size_;
  }

  void Clear() {
    Vector<KeyIndex>().swap(segments_);
    one_.Clear();
    size_ = 0;
  }

 private:
  static constexpr size_t kSegments = 256;
  static constexpr size_t kMostInOne = 80000;

  static size_t SegmentOf(uint64_t hash) { return hash >> 8 & (kSegments - 1); }
  // The straight path is a small table's, which is bound by instructions and not by memory.
  bool one() const { return __builtin_expect(segments_.empty(), 1); }
  KeyIndex& Of(uint64_t hash) { return one() ? one_ : segments_[SegmentOf(hash)]; }
  const KeyIndex& Of(uint64_t hash) const { return one() ? one_ : segments_[SegmentOf(hash)]; }

  // Moves the keys to segments, each with room for its share and, from the first to the last, up to half
  // more.
  template <typename HashOf>
  void Split(HashOf hash_of) {
    SegmentedIndex split;
    split.segments_.resize(kSegments);
    const size_t share = size_ / kSegments;
    for (size_t i = 0; i < kSegments; ++i) {
      split.segments_[i].Reserve(hash_of, share + share * i / (2 * kSegments));
    }
    one_.ForEach(hash_of, [&](uint64_t hash, uint32_t row) {
      split.Reserve(hash_of, hash);
      split.Insert(hash, row);
    });
    segments_.swap(split.segments_);
    one_.Clear();
  }

  KeyIndex one_;
  Vector<KeyIndex> segments_;  // empty: all keys are in one_
  size_t size_ = 0;
};

}  // namespace het
