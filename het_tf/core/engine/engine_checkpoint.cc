// Engine: tables into files and back (checkpoint/).
#include "het_tf/core/checkpoint/save.h"
#include "het_tf/core/client/client.h"
#include "het_tf/core/engine/engine.h"

namespace het {

Status Engine::RefuseWhileLoading() const {
  if (!loading_.load(std::memory_order_acquire)) return Status();
  return FailedPrecondition(
      "a checkpoint is being restored into namespace '" + name_ +
      "': its tables cannot be used before that is done. Wait for the restore, which "
      "another thread does; if it failed half-way, restore again or call het_tf.reset()");
}

void Engine::SetLoading(bool loading) {
  if (remote()) return;
  // Whoever uses the tables now is done when these locks are ours, and later ones see the flag.
  std::lock_guard<std::mutex> apply_lock(apply_mutex_);
  std::lock_guard<std::mutex> admin_lock(admin_mutex_);
  std::unique_lock<std::shared_mutex> pool_lock(pool_mutex_);
  loading_.store(loading, std::memory_order_release);
}

Result<het::StoreInfo> Engine::StoreInfo() {
  het::StoreInfo info{store_->partitions(), store_->hash_seed(), remote(), {}};
  for (const std::string& name : TableNames()) {
    const auto table = Find(name);
    if (!table.ok()) continue;  // dropped meanwhile
    HET_ASSIGN_OR_RETURN(TableState state, store_->State(*table.value()->schema));
    info.tables[name] = {table.value()->schema, std::move(state), table.value()->applies.load()};
  }
  return info;
}

Result<RowFileSummary> Engine::SaveRows(const std::string& path, const SaveRequest& request) {
  std::shared_lock<std::shared_mutex> lock(load_mutex_);
  if (!loader_.empty()) {
    return FailedPrecondition("namespace '" + name_ + "' is being loaded by '" + loader_ +
                              "', and a part of a table is nothing to save; wait until it is done");
  }
  std::vector<SavedTable> tables;
  for (const std::string& name : request.tables) {
    const auto table = Find(name);
    if (!table.ok()) return table.status();
    tables.push_back({table.value()->schema, false, {}});
    const auto since = request.since.find(name);
    if (since == request.since.end()) continue;
    tables.back().increment = true;
    tables.back().since = since->second;
  }
  return het::SaveRows(store_.get(), path, tables, request.partitions);
}

Status Engine::VisitRows(const std::string& table, const std::function<Status(const RowBatch&)>& fn) {
  const auto found = Find(table);
  if (!found.ok()) return found.status();
  const TableSchema& schema = *found.value()->schema;
  RowBatch batch(schema, size_t{8} << 20);
  for (uint32_t p = 0; p < store_->partitions(); ++p) {
    for (uint64_t cursor = 0; cursor != TableStore::kScanned;) {
      batch.Clear();
      HET_RETURN_IF_ERROR(store_->ScanSome(schema, p, &cursor, &batch));
      HET_RETURN_IF_ERROR(fn(batch));
    }
  }
  return Status();
}

Status Engine::BeginLoad(const BeginRequest& request) {
  {
    std::shared_lock<std::shared_mutex> lock(load_mutex_);
    if (loader_ == request.loader) return remote() ? store_->BeginLoad(loader_, request.seconds) : Status();
  }
  std::unique_lock<std::shared_mutex> lock(load_mutex_);
  if (!loader_.empty()) {
    return FailedPrecondition("namespace '" + name_ + "' is being loaded by '" + loader_ +
                              "'; wait until it is done");
  }
  SetLoading(true);
  {
    // What is not sent yet would be refused: the rows that it belongs to are about to go.
    std::lock_guard<std::mutex> client_lock(client_mutex_);
    client_->Reload();
  }
  const Status begun = store_->BeginLoad(request.loader, request.seconds);
  if (!begun.ok()) {
    SetLoading(false);
    return begun;
  }
  loader_ = request.loader;
  return Status();
}

Status Engine::CheckLoading() const {
  // At a remote store another process may have begun it.
  if (remote() || !loader_.empty()) return Status();
  return FailedPrecondition("nobody loads into namespace '" + name_ + "'; call HetLoadBegin first");
}

Status Engine::ClearForLoad(const std::string& name) {
  std::shared_lock<std::shared_mutex> lock(load_mutex_);
  HET_RETURN_IF_ERROR(CheckLoading());
  const auto table = Find(name);
  return table.ok() ? store_->ClearTable(*table.value()->schema) : table.status();
}

Result<std::map<std::string, LoadedRows>> Engine::LoadRows(const std::string& path,
                                                           const LoadRequest& request) {
  std::shared_lock<std::shared_mutex> lock(load_mutex_);
  HET_RETURN_IF_ERROR(CheckLoading());
  const auto file = RowReader::Open(path);
  if (!file.ok()) return file.status();
  std::map<std::string, LoadedRows> all;
  for (const auto& [name, target] : request.tables) {
    const auto from = file.value()->Find(name);
    if (!from.ok()) return from.status();
    const auto to = Find(target.to);
    if (!to.ok()) return to.status();
    auto loaded =
        het::LoadRows(store_.get(), *file.value(), *from.value(), *to.value()->schema, target.slots);
    if (!loaded.ok()) return loaded.status();
    all[name] = loaded.value();
  }
  return all;
}

Status Engine::CommitLoad(const CommitRequest& request) {
  std::unique_lock<std::shared_mutex> lock(load_mutex_);
  if (loader_.empty()) {
    return FailedPrecondition("nobody loads into namespace '" + name_ + "'; HetLoadBegin comes first");
  }
  for (const auto* numbers : {&request.clock_floors, &request.applies}) {
    for (const auto& [name, number] : *numbers) {
      const auto table = Find(name);
      if (!table.ok()) return table.status();
    }
  }
  for (const auto& [name, floor] : request.clock_floors) {
    HET_RETURN_IF_ERROR(store_->RaiseFloor(*Find(name).value()->schema, floor));
  }
  HET_RETURN_IF_ERROR(store_->CommitLoad(loader_));
  for (const auto& [name, applies] : request.applies) Find(name).value()->applies.store(applies);
  loader_.clear();
  SetLoading(false);
  return Status();
}

Status Engine::AbortLoad() {
  std::unique_lock<std::shared_mutex> lock(load_mutex_);
  if (loader_.empty()) return Status();
  const std::string loader = std::exchange(loader_, "");
  const Status aborted = store_->AbortLoad(loader);
  SetLoading(false);
  return aborted;
}

}  // namespace het
