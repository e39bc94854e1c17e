// Which clock the row of each key had in a chain of row files: a full one and the increments after it. The
// next increment holds what has changed since, and a merge the newest row of each key.
//
// Memory: 16 bytes a row and 5 to 8 of index, for the keys of the partitions that are asked for.
#pragma once

#include <string>
#include <vector>

#include "het_tf/core/checkpoint/row_reader.h"
#include "het_tf/core/row/key_index.h"
#include "het_tf/core/wire/layout.h"

namespace het {

class Chain {
 public:
  // Keys that live in one of `partitions` of a store, whatever the shape of the store that wrote the files.
  Chain(const TableLayout& layout, const std::vector<uint32_t>& partitions);

  // The next file, oldest first; one without the table says nothing about it. Throws std::bad_alloc.
  Status Add(const RowReader& file, const std::string& table);
  // Rows and removals that the files can bring, at most.
  static Result<uint64_t> MostRows(const std::vector<std::string>& files, const std::string& table);

  // The store has this row: true if the chain has it with another clock, or not at all.
  bool Changed(Key key, Clock clock);
  // Appends keys of the chain that Changed was never asked about, going on at *cursor (at first 0), at most
  // `most`. False: these were the last.
  bool Removed(uint64_t* cursor, size_t most, Vector<Key>* keys) const;

  // What the chain makes of its keys: rows, and keys that a file has removed and no later row brings back.
  struct Counts {
    uint64_t rows = 0;
    uint64_t gone = 0;
  };
  Counts Count() const;
  // True once for each key that has a row: for the newest of its rows, if the caller goes from the last row
  // of the chain to the first.
  bool Take(Key key);
  // As Removed, for the keys that are gone.
  bool Gone(uint64_t* cursor, size_t most, Vector<Key>* keys) const;

 private:
  struct Row {
    Key key;
    Clock clock;  // kGone: removed by a file; kSeen: the store has it, or Take did
  };
  static constexpr Clock kGone = -1;
  static constexpr Clock kSeen = -2;

  uint64_t Hash(Key key) const { return layout_.Hash(key); }
  uint32_t Find(Key key, uint64_t hash) const {
    return index_.Find(hash, [&](uint32_t row) { return rows_[row].key == key; });
  }

  template <typename Wanted>
  bool Collect(uint64_t* cursor, size_t most, Vector<Key>* keys, Wanted wanted) const;

  const TableLayout layout_;
  Vector<uint8_t> wanted_;  // of each partition
  KeyIndex index_;
  Vector<Row> rows_;
};

}  // namespace het
