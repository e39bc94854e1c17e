// Saves from a store to a row file: one call writes one file, for some partitions of some tables.
//
//   TableStore::ScanSome or ChangesSome ──► RowBatch ──► RowWriter
//
// Memory: two batches (kBatchBytes each), and for an increment the keys that one partition has removed. The
// store is asked for some thousand rows at a time, so that steps can go on; a change that they make meanwhile
// may or may not be in the file, row by row. A row that exists throughout is in the file: if so many rows
// arrive that the room runs out, the save starts again with more. For a snapshot of one moment the caller
// must pause the steps.
//
// The next increment begins at the store's positions before this save.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "het_tf/core/store/table_store.h"
#include "het_tf/ext/checkpoint/cc/row_writer.h"

namespace het {

constexpr size_t kBatchBytes = size_t{4} << 20;

struct SavedTable {
  Schema schema;
  // An increment: rows that changed since these positions, one for each partition of the store, and the keys
  // of rows that were removed since. None: all rows.
  std::optional<std::vector<Position>> since = std::nullopt;
};

// Writes the new file `path`; an error leaves no file. If the store does not know all changes of a table
// since the positions, or loses them while it is read (more removals than it remembers, a clear, a restart),
// then the file has all rows of the table: RowTable::increment of the answer is false. FailedPrecondition:
// rows arrive too fast.
Result<RowFileSummary> SaveRows(TableStore* store, const std::string& path, std::vector<SavedTable> tables,
                                const std::vector<uint32_t>& partitions);

}  // namespace het
