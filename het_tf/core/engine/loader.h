// The state of a load (checkpoints.h): who loads, and whether the tables are the loader's alone.
//
// Concurrency: thread-safe. Rows are saved and loaded by several threads at once (Share); a load
// begins and ends while none of them does.
#pragma once

#include <atomic>
#include <functional>
#include <shared_mutex>
#include <string>

#include "het_tf/core/checkpoint/requests.h"
#include "het_tf/core/store/table_store.h"

namespace het {

class Loader {
 public:
  // Runs the function while no call of the engine uses a table.
  using Alone = std::function<void(const std::function<void()>&)>;

  // `remote`: the servers of `store` keep everyone out while a load goes on, and nothing is refused
  // here.
  Loader(std::string name_space, TableStore* store, bool remote, Alone alone)
      : name_space_(std::move(name_space)), store_(store), remote_(remote), alone_(std::move(alone)) {}

  // FailedPrecondition: the tables are a loader's alone.
  Status RefuseWhileLoading() const;

  // Held while rows are saved or loaded. With it: FailedPrecondition when somebody loads, or
  // nobody.
  std::shared_lock<std::shared_mutex> Share() { return std::shared_lock<std::shared_mutex>(mutex_); }
  Status CheckNobodyLoads() const;
  Status CheckLoading() const;

  // A second Begin of the same loader renews its time. `empty_caches` is called once nobody uses
  // the tables.
  Status Begin(const BeginRequest& request, const std::function<void()>& empty_caches);
  // `finish(commit)`: what there is to do around the commit at the store.
  Status Commit(const std::function<Status(const std::function<Status()>& commit)>& finish);
  // Nothing to do when nobody loads.
  Status Abort();

 private:
  void SetLoading(bool loading);

  const std::string name_space_;
  TableStore* const store_;
  const bool remote_;
  const Alone alone_;
  std::shared_mutex mutex_;           // shared: rows are saved or loaded; exclusive: a load begins or ends
  std::string loader_;                // guarded by it; empty: none has begun here
  std::atomic<bool> loading_{false};  // the store in this process is the loader's alone
};

}  // namespace het
