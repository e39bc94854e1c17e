// From a row file into a store, in place: rows go to the partition of their key, whatever store wrote them.
//
//   RowReader ──► RowBatch ──► [slots] ──► TableStore::LoadBatch
//
// The file is read twice as to its keys: first to tell the store how many rows each partition will get. One
// batch is in memory (kBatchBytes). Nothing can be taken back, so the caller has verified everything before
// the first table is cleared (RowReader::Verify).
#pragma once

#include <string>

#include "het_tf/core/checkpoint/row_reader.h"
#include "het_tf/core/store/table_store.h"

namespace het {

struct LoadedRows {
  uint64_t rows = 0;
  uint64_t removed = 0;  // keys of the file's removals that were there
};

// Into table `to`, between the store's BeginLoad and CommitLoad. Without `slots` each row gets the slots of a
// new one. InvalidArgument, before anything has changed, if the widths differ.
Result<LoadedRows> LoadRows(TableStore* store, const RowReader& file, const RowTable& table,
                            const TableSchema& to, bool slots);

}  // namespace het
