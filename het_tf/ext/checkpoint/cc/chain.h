// The keys of a chain of row files, a full file and the increments after it, and whether the newest entry of
// each is a row or a removal.
//
// Memory: 9 bytes a key and 5 to 8 of index, for the keys of the given partitions.
#pragma once

#include <string>
#include <vector>

#include "het_tf/core/row/key_index.h"
#include "het_tf/core/wire/layout.h"
#include "het_tf/ext/checkpoint/cc/row_reader.h"

namespace het {

class Chain {
 public:
  // Considers only keys in `partitions` of this layout, whatever layout wrote the files.
  Chain(const TableLayout& layout, const std::vector<uint32_t>& partitions);

  // Adds the next file, oldest first. A file without the table changes nothing. Throws std::bad_alloc.
  Status Add(const RowReader& file, const std::string& table);

  // Counts over the chain's keys: keys with a row, and keys whose last entry is a removal.
  struct Counts {
    uint64_t rows = 0;
    uint64_t gone = 0;
  };
  Counts Count() const;
  // Returns true once for each key that has a row: for its newest row, if the caller goes from the last row
  // of the chain to the first.
  bool Take(Key key);
  // Appends at most `most` of the keys whose last entry is a removal, continuing at *cursor (at first 0).
  // Returns false when these were the last.
  bool Gone(uint64_t* cursor, size_t most, Vector<Key>* keys) const;

 private:
  enum class Entry : uint8_t { kRow, kGone, kTaken };

  uint64_t Hash(Key key) const { return layout_.Hash(key); }
  uint32_t Find(Key key, uint64_t hash) const {
    return index_.Find(hash, [&](uint32_t at) { return keys_[at] == key; });
  }

  const TableLayout layout_;
  Vector<uint8_t> wanted_;  // for each partition: 1 if it is asked for
  KeyIndex index_;
  Vector<Key> keys_;
  Vector<Entry> entries_;  // of each key
};

}  // namespace het
