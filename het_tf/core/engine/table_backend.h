// One way in which a table is served. Engine plans a step, asks the backend of each table that the
// step names, and owns what they share; a backend looks at its own tables in a call and leaves the
// others alone.
//
//   DirectBackend  the embedded store's partitions are the store: rows are read and ticked in place
//   CachedBackend  an embedding cache with per-row clocks stands before the store (client/client.h)
//   DeviceBackend  the same, with the cache in the memory of a device (device/device_tables.h), which plans
//                  its steps itself; its tables and others do not go into one call
//
//   lookup   Lookup
//   apply    Prepare (may fail) ─► Tick;  Undo, when a Prepare has failed
//
// Locks: Prepare, Tick and Undo of one engine are called by one thread at a time; all else by any.
// Errors are answered; memory that ends is thrown as std::bad_alloc, with rows as they were before
// the call.
#pragma once

#include <cstdint>
#include <vector>

#include "het_tf/core/client/cached_rows.h"
#include "het_tf/core/engine/table_stats.h"
#include "het_tf/core/plan/batch_call.h"
#include "het_tf/core/plan/step.h"

namespace het {

// A call of a step, as the backends see it.
struct StepCall {
  const BatchCall& call;
  uint64_t number = 0;  // of the training step; 0: no training, and nothing is remembered
  ThreadPool* pool = nullptr;
  Step* step = nullptr;  // the plan: all ids are sorted. Null on a device
  bool planned = false;  // before the lookup: its unique keys are found
  // Its number among planned lookups, which step->next_use counts by; 0: that says nothing.
  uint32_t planned_step = 0;
  // Of an update: which tables get a tick, and whether it was left out because of its loss scale.
  std::vector<uint8_t> changed = {};
  bool skipped = false;
  std::shared_ptr<const OthersUse> others = nullptr;  // where rows travel on demand (on_demand.h)
};

class TableBackend {
 public:
  virtual ~TableBackend() = default;

  virtual bool Serves(const TableOptions& options) const = 0;

  // --- steps

  // out[f] receives the rows of feature f, unless `out` is empty. Finds the unique keys of its
  // groups, unless that was planned.
  virtual Status Lookup(StepCall* call, Span<float* const> out) = 0;
  // Room for what Tick will change. After an error Undo is called.
  virtual Status Prepare(StepCall*) { return Status(); }
  virtual void Undo(StepCall*) {}
  // One tick for every touched key of step->values. Its error leaves ticks that were made as they
  // are.
  virtual Status Tick(StepCall* call, const ApplyArgs& args) = 0;
  // The step is old: rows that it has looked up may leave. Unknown numbers are fine. Where lines know
  // their lookups by number there is nothing to do.
  virtual void Release(uint64_t /*number*/) {}
  // The same, for its gradient has come, or its lookup has failed.
  virtual void End(uint64_t number) { Release(number); }

  // --- tables

  // Before the store has the table: what may find no room. After it: the table is known from here
  // on.
  virtual Status Reserve(const Schema&, const TableOptions&) { return Status(); }
  virtual Status Add(const Schema&, const TableOptions&) { return Status(); }
  virtual void Remove(uint64_t /*table*/) {}
  // Everything that was ticked is at the store.
  virtual Status Flush() { return Status(); }
  // Rows were changed at the store: they are forgotten, with their unsent updates.
  virtual void Invalidate(const Table&, Span<const Key>) {}
  virtual void InvalidateAll(const Table&) {}
  virtual Status SetWorkers(const Table&, uint32_t /*workers*/) { return Status(); }
  virtual Status Stats(const Table&, TableStats*) { return Status(); }
};

}  // namespace het
