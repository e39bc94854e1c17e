// The parts that an engine's interfaces share: its store, its client, and its tables and steps. Each part is
// thread-safe and has its own header; no part depends on an interface.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "het_tf/core/base/trace_log.h"
#include "het_tf/core/engine/backends.h"
#include "het_tf/core/engine/client_driver.h"
#include "het_tf/core/engine/kept_gradients.h"
#include "het_tf/core/engine/lookahead.h"
#include "het_tf/core/engine/step_store.h"
#include "het_tf/core/engine/table_catalog.h"
#include "het_tf/core/store/local_service.h"
#include "het_tf/core/store/table_store.h"
#include "het_tf/core/wire/transport.h"

namespace het {

// Where rows are stored, behind all caches.
struct EngineStore {
  std::unique_ptr<LocalService> service;  // null: the store is remote
  std::unique_ptr<TableStore> tables;     // creates and counts tables
  std::unique_ptr<Transport> transport;   // carries frames from caches to the store
};

struct EngineParts {
  EngineParts(std::string name, EngineStore store, const ClientConfig& config);
  // Stops the thread first: the client calls the device's tables back.
  ~EngineParts() { driver.Stop(); }

  // Whether tables are outside this process.
  bool remote() const { return store.service == nullptr; }

  // FailedPrecondition: only a loader may use the tables now.
  Status RefuseWhileLoading() const;

  const std::string name;  // of the namespace
  const EngineStore store;
  TraceLog trace;  // phases of steps on cached tables, and whole steps on others
  const std::function<void(const std::string&)> notice;  // shows a text to the user; may be null
  StepStore step_store;
  const std::unique_ptr<Lookahead> lookahead;
  ClientDriver driver;
  KeptGradients kept;
  const Backends backends;
  TableCatalog catalog;
  std::atomic<bool> loading{false};  // only a loader may use this process's store (loads.h)
};

}  // namespace het
