// The tables of an engine into files and back (checkpoint/).
//
// Saving keeps no step waiting: it asks the store for some thousand rows at a time. What caches have not sent
// is not in the file: Caches::Flush comes first.
//
// A load is several calls:
//
//   BeginLoad ─► ClearForLoad, LoadRows ─► CommitLoad
//                                      └─► AbortLoad: the tables stay as they are, loaded in part
//
// In between a store in this process is the loader's alone: every use of a table is refused with
// FailedPrecondition, rather than made to wait for a thread that may have failed. Remote servers keep
// everyone out, this process included: they answer "ask again", and calls wait as long as the
// deadline allows. Either way the load begins by emptying the caches, with their unsent updates,
// by the policy of ClientConfig::on_reload.
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
  // Writes one row file.
  Result<RowFileSummary> SaveRows(const std::string& path, const SaveRequest& request);
  // fn(rows) for all rows of a table, some at a time.
  Status VisitRows(const std::string& table, const std::function<Status(const RowBatch&)>& fn);

  // A second BeginLoad of the same loader renews its time.
  Status BeginLoad(const BeginRequest& request);
  Status ClearForLoad(const std::string& table);
  Result<std::map<std::string, LoadedRows>> LoadRows(const std::string& path, const LoadRequest& request);
  Status CommitLoad(const CommitRequest& request);
  // Does nothing when nobody loads.
  Status AbortLoad();

 private:
  // With the mutex: FailedPrecondition when somebody loads, or nobody.
  Status CheckNobodyLoads() const;
  Status CheckLoading() const;
  void SetLoading(bool loading);

  EngineParts* const parts_;
  Steps* const steps_;
  std::shared_mutex mutex_;  // shared: rows are saved or loaded; exclusive: a load begins or ends
  std::string loader_;       // guarded by it; empty: none has begun here
};

}  // namespace het
