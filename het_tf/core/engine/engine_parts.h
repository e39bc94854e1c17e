// What the interfaces of an engine share: its store, its client, and what it knows of tables and steps. Each
// part is thread-safe and has a header of its own; no part knows an interface.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "het_tf/core/base/trace_log.h"
#include "het_tf/core/engine/backends.h"
#include "het_tf/core/engine/client_driver.h"
#include "het_tf/core/engine/coming_steps.h"
#include "het_tf/core/engine/on_demand.h"
#include "het_tf/core/engine/step_store.h"
#include "het_tf/core/engine/table_catalog.h"
#include "het_tf/core/store/local_service.h"
#include "het_tf/core/store/table_store.h"
#include "het_tf/core/wire/transport.h"

namespace het {

// Where rows are, beyond all caches.
struct EngineStore {
  std::unique_ptr<LocalService> service;  // null: the store is remote
  std::unique_ptr<TableStore> tables;     // makes and counts them
  std::unique_ptr<Transport> transport;   // carries frames of caches to it
};

struct EngineParts {
  EngineParts(std::string name, EngineStore store, const ClientConfig& config);
  // The client calls the device's tables back.
  ~EngineParts() { driver.Stop(); }

  // Whether tables live elsewhere than in this process.
  bool remote() const { return store.service == nullptr; }

  // FailedPrecondition: the tables are a loader's alone.
  Status RefuseWhileLoading() const;

  const std::string name;  // of the namespace
  const EngineStore store;
  TraceLog trace;  // what the steps of cached tables spend their time on, and those of others as a whole
  const std::function<void(const std::string&)> notice;  // tells the user; may be null
  StepStore step_store;
  ComingSteps coming;
  ClientDriver driver;
  OnDemand on_demand;
  const Backends backends;
  TableCatalog catalog;
  std::atomic<bool> loading{false};  // the store in this process is a loader's alone (checkpoints.h)
};

}  // namespace het
