// Engine: all tables of one namespace in this process. The kernels of TensorFlow's ops and the functions of
// capi/ call its four interfaces:
//
//   steps()   the two operations of a training step, Lookup and Apply: the hot path
//   tables()  creates, reads, changes and drops whole tables
//   caches()  sends unsent updates of caches, and empties the caches
//   loads()   replaces the rows of tables, while nothing else uses them
//
// Tables. TableCatalog knows them by name. A table's options choose its backend: DirectBackend (in place, in
// the embedded store), CachedBackend (behind a cache with per-row clocks, in front of the embedded store or
// servers) or one that an extension adds (extensions.h): the same, with the cache in device memory.
//
// The client. ClientDriver owns it, for cached and device tables: one call uses it at a time, and its thread
// continues pushes to servers between calls.
//
// Concurrency. Every method is thread-safe. Lock order: loads (loads.h), updates (steps.h), the
// catalog, lookups (steps.h), the lookahead, the driver.
//
// Processes. GetEngine (registry.h) refuses a forked child.
#pragma once

#include <memory>
#include <string>

#include "het_tf/core/engine/caches.h"
#include "het_tf/core/engine/engine_parts.h"
#include "het_tf/core/engine/loads.h"
#include "het_tf/core/engine/registry.h"
#include "het_tf/core/engine/steps.h"
#include "het_tf/core/engine/table_options.h"
#include "het_tf/core/engine/tables.h"

namespace het {

class Engine {
 public:
  // Tables are in this process. `threads` includes the caller.
  explicit Engine(std::string name, size_t threads = 1, TimeFn time = UnixTime);
  // Tables are at a remote store, and all have a cache.
  Engine(std::string name, size_t threads, std::unique_ptr<TableStore> store,
         std::unique_ptr<Transport> transport, const ClientConfig& config);

  const std::string& name() const { return parts_.name; }
  bool remote() const { return parts_.remote(); }

  Steps& steps() { return steps_; }
  Tables& tables() { return tables_; }
  Caches& caches() { return caches_; }
  Loads& loads() { return loads_; }

  TraceLog* trace() { return &parts_.trace; }
  const Backends& backends() const { return parts_.backends; }
  Lookahead* lookahead() { return parts_.lookahead.get(); }

 private:
  Engine(std::string name, size_t threads, EngineStore store, const ClientConfig& config);

  EngineParts parts_;
  Steps steps_;
  Caches caches_;
  Tables tables_;
  Loads loads_;
};

}  // namespace het
