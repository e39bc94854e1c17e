#include "het_tf/core/engine/loader.h"

#include <mutex>
#include <utility>

namespace het {

Status Loader::RefuseWhileLoading() const {
  if (!loading_.load(std::memory_order_acquire)) return Status();
  return FailedPrecondition("a checkpoint is being restored into namespace '" + name_space_ +
                            "': its tables cannot be used before that is done. Wait for the restore, which "
                            "another thread does; if it failed half-way, restore again or call "
                            "het_tf.reset()");
}

Status Loader::CheckNobodyLoads() const {
  if (loader_.empty()) return Status();
  return FailedPrecondition("namespace '" + name_space_ + "' is being loaded by '" + loader_ +
                            "', and a part of a table is nothing to save; wait until it is done");
}

Status Loader::CheckLoading() const {
  // At a remote store another process may have begun it.
  if (remote_ || !loader_.empty()) return Status();
  return FailedPrecondition("nobody loads into namespace '" + name_space_ + "'; call HetLoadBegin first");
}

void Loader::SetLoading(bool loading) {
  if (remote_) return;
  // Calls that use the tables now are done then, and later ones see the flag.
  alone_([this, loading] { loading_.store(loading, std::memory_order_release); });
}

Status Loader::Begin(const BeginRequest& request, const std::function<void()>& empty_caches) {
  {
    const auto lock = Share();
    if (loader_ == request.loader) return remote_ ? store_->BeginLoad(loader_, request.seconds) : Status();
  }
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  if (!loader_.empty()) {
    return FailedPrecondition("namespace '" + name_space_ + "' is being loaded by '" + loader_ +
                              "'; wait until it is done");
  }
  SetLoading(true);
  Status begun = store_->BeginLoad(request.loader, request.seconds);
  if (!begun.ok()) {
    SetLoading(false);
    return begun;
  }
  // Unsent updates would be refused: the rows that they belong to are about to go.
  empty_caches();
  loader_ = request.loader;
  return Status();
}

Status Loader::Commit(const std::function<Status(const std::function<Status()>& commit)>& finish) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  if (loader_.empty()) {
    return FailedPrecondition("nobody loads into namespace '" + name_space_ + "'; HetLoadBegin comes first");
  }
  HET_RETURN_IF_ERROR(finish([this] { return store_->CommitLoad(loader_); }));
  loader_.clear();
  SetLoading(false);
  return Status();
}

Status Loader::Abort() {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  if (loader_.empty()) return Status();
  const std::string loader = std::exchange(loader_, "");
  const Status aborted = store_->AbortLoad(loader);
  SetLoading(false);
  return aborted;
}

}  // namespace het
