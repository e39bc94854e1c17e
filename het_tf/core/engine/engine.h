// Engine: all tables of one namespace in this process. The kernels of TensorFlow's ops and the functions of
// capi/ call its four interfaces:
//
//   steps()        the two operations of a training step, Lookup and Apply: the hot path
//   tables()       creates, reads, changes and drops whole tables
//   caches()       sends what caches hold back, and empties them
//   checkpoints()  writes rows into files and loads them
//
// Tables. TableCatalog knows them by name. The options of a table choose how it is served:
// DirectBackend (in place, in the embedded store), CachedBackend (behind a cache with per-row
// clocks, before the embedded store or servers) or DeviceBackend (the same, with the cache in
// the memory of a device).
//
// The client. ClientDriver owns it, for cached and device tables: one call uses it at a time; its thread
// moves pushes to servers on between calls.
//
// Concurrency. Every method is thread-safe. Locks are taken in this order: that of loads (checkpoints.h),
// that of updates (steps.h), the catalog's, that of lookups (steps.h), the driver's, that of the coming
// steps.
//
// Processes. GetEngine (registry.h) refuses a child of fork.
#pragma once

#include <memory>
#include <string>

#include "het_tf/core/engine/caches.h"
#include "het_tf/core/engine/checkpoints.h"
#include "het_tf/core/engine/engine_parts.h"
#include "het_tf/core/engine/registry.h"
#include "het_tf/core/engine/steps.h"
#include "het_tf/core/engine/table_options.h"
#include "het_tf/core/engine/tables.h"

namespace het {

class Engine {
 public:
  // Tables live in this process. `threads` counts the caller.
  explicit Engine(std::string name, size_t threads = 1, TimeFn time = UnixTime);
  // Tables live at a remote store. All have a cache.
  Engine(std::string name, size_t threads, std::unique_ptr<TableStore> store,
         std::unique_ptr<Transport> transport, const ClientConfig& config);

  const std::string& name() const { return parts_.name; }
  bool remote() const { return parts_.remote(); }

  Steps& steps() { return steps_; }
  Tables& tables() { return tables_; }
  Caches& caches() { return caches_; }
  Checkpoints& checkpoints() { return checkpoints_; }

  TraceLog* trace() { return &parts_.trace; }
  const Backends& backends() const { return parts_.backends; }

 private:
  Engine(std::string name, size_t threads, EngineStore store, const ClientConfig& config);

  EngineParts parts_;
  Steps steps_;
  Caches caches_;
  Tables tables_;
  Checkpoints checkpoints_;
};

}  // namespace het
