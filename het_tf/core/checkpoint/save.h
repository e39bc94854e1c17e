// From a store into a row file: one call, one file, some partitions of some tables.
//
//   TableStore::ScanSome ──► RowBatch ──► [which rows have changed?] ──► RowWriter
//
// What is in memory meanwhile: two batches (kBatchBytes each), and for an increment the clocks of the rows
// that its chain has of these partitions (chain.h). The store is asked for some thousand rows at a time, so
// steps can go on; what they change meanwhile may be in the file or not, row by row. A row that is there all
// the while is in the file: where rows come in such numbers that there is no room left, it is begun again
// with more. For one moment's state the caller lets steps pause.
#pragma once

#include <string>
#include <vector>

#include "het_tf/core/checkpoint/row_writer.h"
#include "het_tf/core/store/table_store.h"

namespace het {

constexpr size_t kBatchBytes = size_t{4} << 20;

struct SavedTable {
  Schema schema;
  // An increment: rows whose clock differs from the one in these row files, or that are in none of them, and
  // the keys of rows that are gone. Oldest first: a file's removals, then its rows, replace what was before.
  bool increment = false;
  std::vector<std::string> since = {};
};

// Writes the new file `path`. On error there is none.
Result<RowFileSummary> SaveRows(TableStore* store, const std::string& path,
                                const std::vector<SavedTable>& tables,
                                const std::vector<uint32_t>& partitions);

}  // namespace het
