// Whole-table operations at the store: tables are created, dropped, counted, filled and read outside any
// step. Steps read and write by frames instead (transport.h).
//
// Implemented by the embedded store and for remote servers. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "het_tf/core/base/span.h"
#include "het_tf/core/base/status.h"
#include "het_tf/core/row/row_batch.h"
#include "het_tf/core/row/schema.h"
#include "het_tf/core/store/changes.h"
#include "het_tf/core/wire/layout.h"

namespace het {

// All rows of a table, for inspection.
struct TableRows {
  std::vector<Key> keys;
  std::vector<Clock> clocks;
  std::vector<uint32_t> last_used;
  std::vector<uint16_t> counts;
  std::vector<float> rows;  // keys.size() * row_floats: value, then slots
};

// Both are 0 of a table that is not there.
struct TableSize {
  size_t rows = 0;   // that were ever written
  size_t bytes = 0;  // of rows and index
};

// A store's facts about a table, besides its rows.
struct TableState {
  TableLimits limits;
  Clock clock_floor = 0;            // the highest of its partitions (shard.h)
  std::vector<uint64_t> rows;       // for each partition
  std::vector<Position> positions;  // of each partition, from before the other facts were read
};

class TableStore {
 public:
  virtual ~TableStore() = default;

  virtual uint32_t partitions() const = 0;
  virtual uint64_t hash_seed() const = 0;
  TableLayout LayoutOf(const TableSchema& schema) const {
    return Layout(partitions(), hash_seed()).OfTable(schema.id());
  }

  // Repeating it with an equal spec changes nothing. AlreadyExists shows both specs.
  virtual Status CreateTable(const Schema& schema) = 0;
  virtual Status DropTable(const TableSchema& schema) = 0;
  // Removes all rows; caches notice the epoch.
  virtual Status ClearTable(const TableSchema& schema) = 0;
  virtual Result<TableSize> Size(const TableSchema& schema) = 0;
  // Sets the row of every key: row_floats a key with slots, else dim, and slots are reset. Rows are as old as
  // `ages` says, or 0. The last of equal keys counts. After an error earlier rows stay.
  virtual Status Assign(const TableSchema& schema, Span<const Key> keys, const float* rows, bool with_slots,
                        const Clock* ages = nullptr) = 0;
  // Reads the values of rows, dim floats a key: the store's, or initial ones. Keys must be unique.
  virtual Status Read(const TableSchema& schema, Span<const Key> keys, float* values) = 0;
  // Returns how many of the keys existed.
  virtual Result<size_t> Remove(const TableSchema& schema, Span<const Key> keys) = 0;
  // Calls fn(rows) for all rows, some at a time, in their state at that moment.
  Status Visit(const TableSchema& schema, const std::function<Status(const RowBatch&)>& fn);
  // Reads all rows.
  Result<TableRows> Scan(const TableSchema& schema);

  // --- in pieces (checkpoint/)
  virtual Result<TableState> State(const TableSchema& schema) = 0;
  // Appends rows of one partition to *batch from *cursor (at first 0), which it advances; kScanned means the
  // end. A row that exists throughout is seen once, whatever is added or removed meanwhile.
  static constexpr uint64_t kScanned = UINT64_MAX;
  virtual Status ScanSome(const TableSchema& schema, uint32_t partition, uint64_t* cursor,
                          RowBatch* batch) = 0;

  // The worst kind, and the size, of scans of the table's changes in these partitions. `since`: one position
  // a partition, else it is kWhole.
  virtual Result<ChangesCount> CountChanges(const TableSchema& schema, Span<const Position> since,
                                            const std::vector<uint32_t>& partitions) = 0;
  // Appends rows that changed in one partition, and keys removed, since scan->since, and advances the scan.
  // Removals come before rows. Unless scan->kind is kChanges, what is appended is not all.
  virtual Status ChangesSome(const TableSchema& schema, uint32_t partition, ChangesScan* scan, RowBatch* rows,
                             Vector<Key>* removed) = 0;

  // A load: BeginLoad, then clearing and loading by one or several threads, then CommitLoad or AbortLoad.
  // Caches drop all rows of a cleared or loaded table. If others can reach the store, they wait meanwhile, at
  // most `seconds`; after that, or after an abort, they would see a partial load. `loader`: for messages.
  virtual Status BeginLoad(const std::string& loader, uint32_t seconds) = 0;
  virtual Status CommitLoad(const std::string& loader) = 0;
  virtual Status AbortLoad(const std::string& loader) = 0;
  // Reserves room for `more_rows` in each partition, so that it need not grow step by step.
  virtual Status Reserve(const TableSchema& schema, Span<const uint64_t> more_rows) = 0;
  // Loads rows with clocks, last_used and counts, replacing rows with the same keys; the last of equal keys
  // counts. Rows of earlier batches stay if one fails.
  virtual Status LoadBatch(const TableSchema& schema, const RowBatch& rows) = 0;
  // Later rows get clocks of at least `floor` (shard.h).
  virtual Status RaiseFloor(const TableSchema& schema, Clock floor) = 0;
};

}  // namespace het
