// Loads a row file into a store: each row goes to the partition of its key, whatever layout wrote the file.
//
//   RowReader ──► RowBatch ──► [slots] ──► TableStore::LoadBatch
//
// The keys are read twice: first to tell the store how many rows each partition will get. One batch is in
// memory (kBatchBytes). A load cannot be undone, so the caller must verify all files before it clears the
// first table (RowReader::Verify).
#pragma once

#include <string>

#include "het_tf/core/store/table_store.h"
#include "het_tf/ext/checkpoint/cc/row_reader.h"

namespace het {

struct LoadedRows {
  uint64_t rows = 0;
  uint64_t removed = 0;  // the file's removals whose keys the store had
};

// Loads into table `to`, between the store's BeginLoad and CommitLoad. Without `slots` each row gets a new
// row's slots. InvalidArgument if the widths differ; nothing has changed then.
Result<LoadedRows> LoadRows(TableStore* store, const RowReader& file, const RowTable& table,
                            const TableSchema& to, bool slots);

}  // namespace het
