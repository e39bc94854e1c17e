// Loads of an engine's tables from elsewhere: while one replaces rows, nothing else uses them.
//
//   Begin ─► Clear, WhileLoading ─► Commit
//                                └─► Abort: the tables stay, loaded in part
//
// Meanwhile only the loader may use a store in this process: every other use of a table fails with
// FailedPrecondition, since a wait would depend on a thread that may have failed. Remote servers exclude
// everyone, including this process: they answer "ask again", and calls wait within the deadline. In both
// cases the load first empties the caches and discards unsent updates.
//
// Thread-safe; several calls of Clear, WhileLoading and WithoutLoad may run at once.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <shared_mutex>
#include <string>

#include "het_tf/core/engine/engine_parts.h"
#include "het_tf/core/engine/steps.h"

namespace het {

class Loads {
 public:
  Loads(EngineParts* parts, Steps* steps) : parts_(parts), steps_(steps) {}

  // Repeating it with the same loader renews the time. FailedPrecondition: another load is in progress.
  Status Begin(const std::string& loader, uint32_t seconds);
  Status Clear(const std::string& table);
  // By table: the least clock of its rows, and the number of its updates.
  using Numbers = std::map<std::string, int64_t>;
  Status Commit(const Numbers& clock_floors, const Numbers& applies);
  // Does nothing if no load is in progress.
  Status Abort();

  // Runs fn between Begin and Commit, or where no load is in progress; else FailedPrecondition.
  Status WhileLoading(const std::function<Status()>& fn);
  Status WithoutLoad(const std::function<Status()>& fn);

 private:
  // Call with the mutex held.
  Status CheckNobodyLoads() const;
  Status CheckLoading() const;
  void SetLoading(bool loading);

  EngineParts* const parts_;
  Steps* const steps_;
  std::shared_mutex mutex_;  // shared to save or load rows; exclusive to begin or end a load
  std::string loader_;       // guarded by mutex_; empty: no load has begun here
};

}  // namespace het
