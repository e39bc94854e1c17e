// Tables at the store, as whole things: made, dropped, counted, filled and read outside of any
// step. What a step reads and writes goes the way of the frames instead (transport.h).
//
// The embedded store and a remote server are two implementations. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "het_tf/core/base/span.h"
#include "het_tf/core/base/status.h"
#include "het_tf/core/row/row_batch.h"
#include "het_tf/core/row/schema.h"
#include "het_tf/core/wire/layout.h"

namespace het {

// Every row of a table, for looking at.
struct TableRows {
  std::vector<Key> keys;
  std::vector<Clock> clocks;
  std::vector<uint32_t> last_used;
  std::vector<uint16_t> counts;
  std::vector<float> rows;  // keys.size() * row_floats: value, then slots
};

// What a store knows of a table, besides its rows.
struct TableState {
  TableLimits limits;
  Clock clock_floor = 0;       // the highest of its partitions (shard.h)
  std::vector<uint64_t> rows;  // of each partition
  // Of each partition: another number after all that may have changed rows whose clocks say nothing
  // of it: a load, a clear, a server that was restarted.
  std::vector<uint64_t> epochs;
};

class TableStore {
 public:
  virtual ~TableStore() = default;

  virtual uint32_t partitions() const = 0;
  virtual uint64_t hash_seed() const = 0;
  TableLayout LayoutOf(const TableSchema& schema) const {
    return Layout(partitions(), hash_seed()).OfTable(schema.id());
  }

  // An equal second creation changes nothing. AlreadyExists shows both specs.
  virtual Status CreateTable(const Schema& schema) = 0;
  virtual Status DropTable(const TableSchema& schema) = 0;
  // All rows go; caches notice by the epoch.
  virtual Status ClearTable(const TableSchema& schema) = 0;
  virtual Result<size_t> CountRows(const TableSchema& schema) = 0;
  virtual Result<size_t> CountBytes(const TableSchema& schema) = 0;
  // One tick for every key, whose row becomes the given one: row_floats a key with slots, else dim,
  // and slots return to their initial content. The last of equal keys wins. Rows before one that
  // fails stay.
  virtual Status Assign(const TableSchema& schema, Span<const Key> keys, const float* rows,
                        bool with_slots) = 0;
  // The values of rows, dim floats a key: as the store has them, or initial ones. Keys occur once each.
  virtual Status Read(const TableSchema& schema, Span<const Key> keys, float* values) = 0;
  // How many of the keys were there.
  virtual Result<size_t> Remove(const TableSchema& schema, Span<const Key> keys) = 0;
  // All rows, as they are while it reads them.
  Result<TableRows> Scan(const TableSchema& schema);

  // --- a piece at a time (checkpoint/)
  virtual Result<TableState> State(const TableSchema& schema) = 0;
  // Appends rows of one partition to *batch, beginning at *cursor (at first 0) and moving it on;
  // there are no more when it is kScanned. A row that is there all the while is seen once, whatever
  // is added or removed meanwhile.
  static constexpr uint64_t kScanned = UINT64_MAX;
  virtual Status ScanSome(const TableSchema& schema, uint32_t partition, uint64_t* cursor,
                          RowBatch* batch) = 0;

  // A load: BeginLoad, then clearing and loading by one thread or several, then CommitLoad or
  // AbortLoad. No cache believes what it holds of a table that was cleared or loaded. Where others
  // can reach the store, they wait meanwhile, `seconds` at most; what they would see after that, or
  // after an abort, is a load in part. `loader`: who, for people.
  virtual Status BeginLoad(const std::string& loader, uint32_t seconds) = 0;
  virtual Status CommitLoad(const std::string& loader) = 0;
  virtual Status AbortLoad(const std::string& loader) = 0;
  // Room for so many more rows in each partition: what is known beforehand need not be grown step
  // by step.
  virtual Status Reserve(const TableSchema& schema, Span<const uint64_t> more_rows) = 0;
  // Rows as they are, with clocks, last_used and counts, in the place of those with the same keys;
  // of equal keys the last one wins. Rows of earlier batches stay if one fails.
  virtual Status LoadBatch(const TableSchema& schema, const RowBatch& rows) = 0;
  // No clock of a row that comes from now on is below it (shard.h).
  virtual Status RaiseFloor(const TableSchema& schema, Clock floor) = 0;
};

}  // namespace het
