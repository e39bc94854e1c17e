// Names of keys that both sides of a conversation know: a byte or two in place of a hash of eight.
//
// A request says some keys in full. Both sides append these to a ring of `size` places, in the order that the
// request has them; the place of a key in the ring is its name, until `size` more keys were appended. (HPACK,
// RFC 7541, names headers so.) A name is of a key, not of its row: rows may come, go and be loaded meanwhile.
//
//   request n     push: key 7, key 9      ──►  both append 7 and 9, to places 0 and 1
//   request n+1   push: name 1, key 4     ──►  is 9 and 4; both append 4
//
// The rings of both sides must be equal. state() digests all that was appended, and EpochDigest has it: the
// partition refuses a request whose client has another ring (kEpoch, nothing is done), and the client begins
// anew. So it does after every failure (Session).
//
// The answer to a request names keys as of that request. Its client may have appended others since, and so
// keeps the last `kept` keys, twice as many as have names; At takes the number that were appended then.
#pragma once

#include <cstdint>

#include "het_tf/core/base/alloc.h"
#include "het_tf/core/base/hash.h"
#include "het_tf/core/base/span.h"
#include "het_tf/core/row/key_index.h"
#include "het_tf/core/wire/ids.h"

namespace het {

class NamedKeys {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  // A limit on `size`.
  static constexpr uint32_t kMostPlaces = 1 << 14;
  static bool IsSize(uint32_t size) { return size != 0 && size <= kMostPlaces; }

  // `kept`: a multiple of `size`.
  NamedKeys(uint32_t size, uint32_t kept) : size_(size), kept_(kept), state_(Mix64(size)) {}

  uint32_t size() const { return size_; }
  uint64_t state() const { return state_; }
  // How many keys were appended.
  uint64_t appended() const { return appended_; }
  // Memory: grows with the keys.
  size_t bytes() const { return keys_.capacity() * sizeof(Key) + index_.bytes(); }

  // Throws std::bad_alloc; then the ring is of no use.
  void Append(Key key);
  // Returns the key's name; kNone: it has none.
  uint32_t Find(Key key) const;
  // Returns the key that had this name when `appended` keys were there; null: none had, or it is forgotten.
  const Key* At(uint32_t name, uint64_t appended) const;

 private:
  static uint64_t Hash(Key key) { return HashKey(key, 0); }
  // The place of a key in keys_; kNoRow: it has no name.
  uint32_t PlaceOf(Key key) const {
    return index_.Find(Hash(key), [&](uint32_t place) { return keys_[place] == key; });
  }

  const uint32_t size_;
  const uint32_t kept_;
  uint64_t state_;
  uint64_t appended_ = 0;
  Vector<Key> keys_;  // number i at i % kept_
  KeyIndex index_;    // of those that have names: the newest place of each
};

// In lists of names 0 stands for a key in full, and 1 + n for name n.
//
// Sets *names for a list of keys.
void NameKeys(const NamedKeys& ring, Span<const Key> keys, Vector<uint32_t>* names);
// Completes a list that came with names: *keys had those in full. Returns false, with *keys unchanged, for a
// name that no key has, and for keys that do not ascend. Throws std::bad_alloc.
bool CompleteKeys(const NamedKeys& ring, uint64_t appended, Span<const uint32_t> names, Vector<Key>* keys);

}  // namespace het
