// One way to serve a table. Engine calls the backend of each of a step's tables, and owns the shared parts; a
// backend handles only its own tables in a call.
//
//   DirectBackend  the embedded store's partitions, where rows are read and ticked in place
//   CachedBackend  an embedding cache with per-row clocks in front of the store (client/client.h)
//   DeviceBackend  the same, with the cache in device memory (device_backend.h), which plans its own
//                   steps; a call must not mix its tables with others
//
//   lookup   Plan ─► Lookup
//   apply    Prepare (may fail) ─► Tick;  Undo, when a Prepare has failed
//
// Locks: Prepare, Tick and Undo of one engine are called by one thread at a time, other methods by any.
// Errors are returned; exhausted memory is thrown as std::bad_alloc, with rows unchanged.
#pragma once

#include <cstdint>
#include <vector>

#include "het_tf/core/client/cached_rows.h"
#include "het_tf/core/engine/table_stats.h"
#include "het_tf/core/plan/batch_call.h"
#include "het_tf/core/plan/step.h"

namespace het {

// A call of a step, for the backends.
struct StepCall {
  const BatchCall& call;
  uint64_t number = 0;  // the training step's number; 0: no training, nothing is remembered
  ThreadPool* pool = nullptr;
  Step* step = nullptr;  // the plan, with sorted ids; unused by a backend that plans itself
  bool planned = false;  // planned before the lookup: its unique keys are known
  bool ready = false;    // the plan is
  // Its number among planned lookups, on which step->next_use is based; 0: next_use is unused.
  uint32_t planned_step = 0;
  bool follows = false;  // as CachedRead::follows
  // For an update: which tables were ticked.
  std::vector<uint8_t> changed = {};
  const OthersUse* others = nullptr;  // null: unknown (lookahead.h)
};

class TableBackend {
 public:
  virtual ~TableBackend() = default;

  virtual bool Serves(const TableOptions& options) const = 0;

  // --- steps

  // Sorts the ids of a lookup into call->step, unless another backend of the call has, and zeroes the rows of
  // padding. `store`: any of its partitions.
  virtual void Plan(StepCall* call, const PartitionId& store, Span<float* const> out);
  // Writes the rows of feature f to out[f], unless `out` is empty. Finds the unique keys of its groups,
  // unless the step was planned.
  virtual Status Lookup(StepCall* call, Span<float* const> out) = 0;
  // Allocates what Tick needs. After an error Undo is called.
  virtual Status Prepare(StepCall*) { return Status(); }
  virtual void Undo(StepCall*) {}
  // Ticks every touched key of step->values. After an error, ticks that were made stay.
  virtual Status Tick(StepCall* call, const ApplyArgs& args) = 0;
  // The step is old: its rows may leave. Unknown numbers are ignored. Backends that know lookups by number
  // need not do anything.
  virtual void Release(uint64_t /*number*/) {}
  // The same, because its gradient has come or its lookup has failed.
  virtual void End(uint64_t number) { Release(number); }

  // --- tables

  // Reserve allocates before the store creates the table; Add registers the table after.
  virtual Status Reserve(const Schema&, const TableOptions&) { return Status(); }
  virtual Status Add(const Schema&, const TableOptions&) { return Status(); }
  virtual void Remove(uint64_t /*table*/) {}
  // Sends all ticked updates to the store.
  virtual Status Flush() { return Status(); }
  // Rows were changed at the store: drops them with their unsent updates.
  virtual void Invalidate(const Table&, Span<const Key>) {}
  virtual void InvalidateAll(const Table&) {}
  virtual Status Stats(const Table&, TableStats*) { return Status(); }
};

}  // namespace het
