// The clock of each key's row in a chain of row files: a full file and the increments after it. The next
// increment holds rows that have changed since, and a merge holds the newest row of each key.
//
// Memory: 16 bytes a row and 5 to 8 of index, for the keys of the given partitions.
#pragma once

#include <string>
#include <vector>

#include "het_tf/core/checkpoint/row_reader.h"
#include "het_tf/core/row/key_index.h"
#include "het_tf/core/wire/layout.h"

namespace het {

class Chain {
 public:
  // Considers only keys in `partitions` of this layout, whatever layout wrote the files.
  Chain(const TableLayout& layout, const std::vector<uint32_t>& partitions);

  // Adds the next file, oldest first. A file without the table changes nothing. Throws std::bad_alloc.
  Status Add(const RowReader& file, const std::string& table);
  // Returns an upper bound on the rows and removals in the files.
  static Result<uint64_t> MostRows(const std::vector<std::string>& files, const std::string& table);

  // Call for each row of the store. Returns true if the chain has it with another clock, or not at all.
  bool Changed(Key key, Clock clock);
  // Appends at most `most` keys of the chain that Changed was never called for, continuing at *cursor (at
  // first 0). Returns false when these were the last.
  bool Removed(uint64_t* cursor, size_t most, Vector<Key>* keys) const;

  // Counts over the chain's keys: keys with a row, and keys whose last entry is a removal.
  struct Counts {
    uint64_t rows = 0;
    uint64_t gone = 0;
  };
  Counts Count() const;
  // Returns true once for each key that has a row: for its newest row, if the caller goes from the last row
  // of the chain to the first.
  bool Take(Key key);
  // As Removed, for the keys whose last entry is a removal.
  bool Gone(uint64_t* cursor, size_t most, Vector<Key>* keys) const;

 private:
  struct Row {
    Key key;
    Clock clock;  // kGone: removed by a file; kSeen: passed to Changed or Take
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
  Vector<uint8_t> wanted_;  // for each partition: 1 if it is asked for
  KeyIndex index_;
  Vector<Row> rows_;
};

}  // namespace het
