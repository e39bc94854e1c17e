// The tables of an engine as objects, outside a step: creates, reads, changes and drops them.
//
// Thread-safe. Calls that wait for a remote store hold at most the catalog's lock: steps go on meanwhile. If
// tables are in this process, calls that remove rows wait for a running Apply. Errors: NotFound lists the
// tables that exist; FailedPrecondition: a checkpoint is being loaded; others come from the store.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "het_tf/core/engine/caches.h"
#include "het_tf/core/engine/engine_parts.h"
#include "het_tf/core/engine/steps.h"
#include "het_tf/core/engine/table_stats.h"

namespace het {

class Tables {
 public:
  Tables(EngineParts* parts, Steps* steps, Caches* caches) : parts_(parts), steps_(steps), caches_(caches) {}

  // Repeating it with an equal spec changes at most the limits. AlreadyExists: spec or options differ; the
  // message shows both.
  Status Create(const TableSpec& spec, const TableOptions& options);
  Result<TablePtr> Find(const std::string& name) const { return parts_->catalog.Find(name); }
  // FailedPrecondition: other workers may hold back updates of the table (lookahead.h). `what`: "a save".
  Result<TablePtr> FindSettled(const std::string& name, const char* what);
  std::vector<std::string> Names() const { return parts_->catalog.Names(); }
  Status Drop(const std::string& name) { return RemoveTable(name, true); }
  // This process no longer needs it. A table in this process is dropped; at a remote store its rows stay,
  // unsent updates are sent, and its cache's memory is freed.
  Status Leave(const std::string& name) { return RemoveTable(name, !parts_->remote()); }
  // Changes whenever a table is created or dropped: earlier results of Find are then invalid.
  uint64_t generation() const { return parts_->catalog.generation(); }

  Result<size_t> Size(const std::string& table);   // rows that were ever written
  Result<size_t> Bytes(const std::string& table);  // of rows and index
  // values: keys.size() * dim floats, as a lookup reads them.
  Status Read(const std::string& table, Span<const Key> keys, float* values);
  // Reads the store's rows, after caches have sent their updates. Keys must be unique.
  Status ReadStored(const std::string& table, Span<const Key> keys, float* values);
  // Sets values and resets slots. `rows` includes slots if with_slots (row_floats a key). Rows are as old as
  // `ages` says, or 0. The last of duplicate keys counts. InvalidArgument: the steps of the table's optimizer
  // depend on ages, and slots come without.
  Status Assign(const std::string& table, Span<const Key> keys, const float* rows, bool with_slots,
                const Clock* ages = nullptr);
  // *removed: number of the keys that existed.
  Status Remove(const std::string& table, Span<const Key> keys, size_t* removed);
  Status Clear(const std::string& table);
  Result<TableRows> Scan(const std::string& table);
  // Calls fn(rows) for all of the store's rows, some at a time. Unsent updates of caches are not included.
  Status Visit(const std::string& table, const std::function<Status(const RowBatch&)>& fn);
  // Fills the batch with the store's rows: with all if they fit, else with runs of rows from random
  // positions, in which one may occur twice. Unsent updates of caches are not included.
  Status Sample(const std::string& table, uint64_t seed, RowBatch* rows);
  Result<TableStats> Stats(const std::string& table);
  // The same of all tables, without rows and bytes of the store: asks no server. Skips a table that goes.
  std::vector<TableStats> StatsHere();
  TableStore* store() const { return parts_->store.tables.get(); }

 private:
  Result<TableStats> StatsHere(const Table& table);
  Status RemoveTable(const std::string& name, bool with_rows);
  // Flushes first, so that the store has all updates.
  Result<TablePtr> FindFlushed(const std::string& name);

  EngineParts* const parts_;
  Steps* const steps_;
  Caches* const caches_;
};

}  // namespace het
