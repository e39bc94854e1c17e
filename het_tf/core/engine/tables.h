// The tables of an engine as objects, outside of a step: created, looked at, changed and dropped.
//
// Thread-safe. Calls that wait for a remote store hold the catalog's lock at most: steps go on meanwhile.
// Where tables live in this process, calls that remove rows wait for a running Apply. Errors: NotFound lists
// the tables there are; FailedPrecondition while a checkpoint is loaded; others are the store's.
#pragma once

#include <cstdint>
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

  // An equal second creation changes the limits at most, where the spec has some. AlreadyExists
  // when spec or options differ; the message shows both.
  Status Create(const TableSpec& spec, const TableOptions& options);
  Result<TablePtr> Find(const std::string& name) const { return parts_->catalog.Find(name); }
  std::vector<std::string> Names() const { return parts_->catalog.Names(); }
  Status Drop(const std::string& name) { return RemoveTable(name, true); }
  // This process needs it no more. Its rows go where tables live in this process; at a remote store
  // they stay, with what was held back, and the memory of its cache goes.
  Status Leave(const std::string& name) { return RemoveTable(name, !parts_->remote()); }
  // Changes whenever a table is created or dropped: what was found before must be looked for again.
  uint64_t generation() const { return parts_->catalog.generation(); }

  Result<size_t> Size(const std::string& table);   // rows that were ever written
  Result<size_t> Bytes(const std::string& table);  // of rows and index
  // values: keys.size() * dim floats, as a lookup reads them.
  Status Read(const std::string& table, Span<const Key> keys, float* values);
  // The same as the store has them, when caches have sent what they hold back. Keys occur once each.
  Status ReadStored(const std::string& table, Span<const Key> keys, float* values);
  // Sets values; slots return to their initial content. `rows` with slots when with_slots
  // (row_floats a key). Counts as one tick. Duplicate keys: the last one wins.
  Status Assign(const std::string& table, Span<const Key> keys, const float* rows, bool with_slots);
  // *removed: how many of the keys were there.
  Status Remove(const std::string& table, Span<const Key> keys, size_t* removed);
  Status Clear(const std::string& table);
  Result<TableRows> Scan(const std::string& table);
  // Fills the batch with rows of the store: with all of them where they fit, else with runs of rows from
  // random places, in which one may occur twice. What caches have not sent is not in them.
  Status Sample(const std::string& table, uint64_t seed, RowBatch* rows);
  Result<TableStats> Stats(const std::string& table);

 private:
  Status RemoveTable(const std::string& name, bool with_rows);
  // With everything of it at the store.
  Result<TablePtr> FindFlushed(const std::string& name);

  EngineParts* const parts_;
  Steps* const steps_;
  Caches* const caches_;
};

}  // namespace het
