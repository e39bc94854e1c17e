// Saves an engine's tables to files and loads them (checkpoint/).
//
// Saving does not block steps: it asks the store for some thousand rows at a time. Unsent updates of caches
// are not in the file: call Caches::Flush first.
//
// A load is several calls:
//
//   BeginLoad ─► ClearForLoad, LoadRows ─► CommitLoad
//                                      └─► AbortLoad: the tables stay, loaded in part
//
// Meanwhile only the loader may use a store in this process: every other use of a table fails with
// FailedPrecondition, since a wait would depend on a thread that may have failed. Remote servers exclude
// everyone, including this process: they answer "ask again", and calls wait within the deadline. In both
// cases the load first empties the caches, treating unsent updates by ClientConfig::on_reload.
//
// Thread-safe; several calls of SaveRows, ClearForLoad and LoadRows may run at once.
#pragma once

#include <functional>
#include <map>
#include <shared_mutex>
#include <string>

#include "het_tf/core/checkpoint/requests.h"
#include "het_tf/core/engine/engine_parts.h"
#include "het_tf/core/engine/steps.h"

namespace het {

class Checkpoints {
 public:
  Checkpoints(EngineParts* parts, Steps* steps) : parts_(parts), steps_(steps) {}

  Result<StoreInfo> Info();
  // For each table: what scans of the changes since these positions would be.
  Result<std::map<std::string, ChangesKind>> KindsSince(
      const std::map<std::string, std::vector<Position>>& since);
  // Writes one row file.
  Result<RowFileSummary> SaveRows(const std::string& path, const SaveRequest& request);
  // Calls fn(rows) for all rows of a table, some at a time.
  Status VisitRows(const std::string& table, const std::function<Status(const RowBatch&)>& fn);

  // Repeating it with the same loader renews the time.
  Status BeginLoad(const BeginRequest& request);
  Status ClearForLoad(const std::string& table);
  Result<std::map<std::string, LoadedRows>> LoadRows(const std::string& path, const LoadRequest& request);
  Status CommitLoad(const CommitRequest& request);
  // Does nothing if no load is in progress.
  Status AbortLoad();

 private:
  // Call with the mutex held. FailedPrecondition: a load is, or is not, in progress.
  Status CheckNobodyLoads() const;
  Status CheckLoading() const;
  void SetLoading(bool loading);

  EngineParts* const parts_;
  Steps* const steps_;
  std::shared_mutex mutex_;  // shared to save or load rows; exclusive to begin or end a load
  std::string loader_;       // guarded by mutex_; empty: no load has begun here
};

}  // namespace het
