// Saves from a store to a row file: one call writes one file, for some partitions of some tables.
//
//   TableStore::ScanSome ──► RowBatch ──► [which rows have changed?] ──► RowWriter
//
// Memory: two batches (kBatchBytes each), and for an increment the clocks of its chain's rows in these
// partitions (chain.h). The store is asked for some thousand rows at a time, so that steps can go on; a
// change that they make meanwhile may or may not be in the file, row by row. A row that exists throughout is
// in the file: if so many rows arrive that the room runs out, the save starts again with more. For a snapshot
// of one moment the caller must pause the steps.
#pragma once

#include <string>
#include <vector>

#include "het_tf/core/checkpoint/row_writer.h"
#include "het_tf/core/store/table_store.h"

namespace het {

constexpr size_t kBatchBytes = size_t{4} << 20;

struct SavedTable {
  Schema schema;
  // An increment: rows whose clock differs from theirs in these row files, or that are in none of the files,
  // and the keys of removed rows. Oldest first: each file's removals, then its rows, replace earlier entries.
  bool increment = false;
  std::vector<std::string> since = {};
};

// Writes the new file `path`; an error leaves no file.
Result<RowFileSummary> SaveRows(TableStore* store, const std::string& path,
                                const std::vector<SavedTable>& tables,
                                const std::vector<uint32_t>& partitions);

}  // namespace het
