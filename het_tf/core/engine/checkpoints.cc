#include "het_tf/core/engine/checkpoints.h"

#include <mutex>
#include <utility>

#include "het_tf/core/checkpoint/save.h"

namespace het {
namespace {

Status NobodyLoads(const std::string& name_space) {
  return FailedPrecondition("no load is in progress in namespace '" + name_space +
                            "'; call HetLoadBegin first");
}

}  // namespace

Result<StoreInfo> Checkpoints::Info() {
  StoreInfo info{parts_->store.tables->partitions(), parts_->store.tables->hash_seed(), parts_->remote(), {}};
  for (const std::string& name : parts_->catalog.Names()) {
    const auto table = parts_->catalog.Find(name);
    if (!table.ok()) continue;  // dropped meanwhile
    HET_ASSIGN_OR_RETURN(TableState state, parts_->store.tables->State(*table.value()->schema));
    info.tables[name] = {table.value()->schema, std::move(state), table.value()->applies.load()};
  }
  return info;
}

Result<std::map<std::string, ChangesKind>> Checkpoints::KindsSince(
    const std::map<std::string, std::vector<Position>>& since) {
  std::map<std::string, ChangesKind> kinds;
  for (const auto& [name, positions] : since) {
    HET_ASSIGN_OR_RETURN(const TablePtr table, parts_->catalog.Find(name));
    HET_ASSIGN_OR_RETURN(kinds[name], parts_->store.tables->KindSince(*table->schema, positions));
  }
  return kinds;
}

Result<RowFileSummary> Checkpoints::SaveRows(const std::string& path, const SaveRequest& request) {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  HET_RETURN_IF_ERROR(CheckNobodyLoads());
  std::vector<SavedTable> tables;
  for (const std::string& name : request.tables) {
    HET_ASSIGN_OR_RETURN(const TablePtr table, parts_->catalog.Find(name));
    tables.push_back({table->schema});
    const auto since = request.since.find(name);
    if (since != request.since.end()) tables.back().since = since->second;
    HET_RETURN_IF_ERROR(parts_->on_demand.Require({&table, 1}, "a save"));
  }
  return het::SaveRows(parts_->store.tables.get(), path, tables, request.partitions);
}

Status Checkpoints::VisitRows(const std::string& name, const std::function<Status(const RowBatch&)>& fn) {
  HET_ASSIGN_OR_RETURN(const TablePtr table, parts_->catalog.Find(name));
  HET_RETURN_IF_ERROR(parts_->on_demand.Require({&table, 1}, "an export"));
  RowBatch batch(*table->schema, size_t{8} << 20);
  for (uint32_t p = 0; p < parts_->store.tables->partitions(); ++p) {
    for (uint64_t cursor = 0; cursor != TableStore::kScanned;) {
      batch.Clear();
      HET_RETURN_IF_ERROR(parts_->store.tables->ScanSome(*table->schema, p, &cursor, &batch));
      HET_RETURN_IF_ERROR(fn(batch));
    }
  }
  return Status();
}

Status Checkpoints::CheckNobodyLoads() const {
  if (loader_.empty()) return Status();
  return FailedPrecondition("namespace '" + parts_->name + "' is being loaded by '" + loader_ +
                            "'; wait until it is done");
}

Status Checkpoints::CheckLoading() const {
  // At a remote store another process may have begun the load.
  return parts_->remote() || !loader_.empty() ? Status() : NobodyLoads(parts_->name);
}

void Checkpoints::SetLoading(bool loading) {
  if (parts_->remote()) return;
  // Running calls on the tables end first, and later ones see the flag.
  steps_->Pause([this, loading] { parts_->loading.store(loading, std::memory_order_release); });
}

Status Checkpoints::BeginLoad(const BeginRequest& request) {
  TableStore* const store = parts_->store.tables.get();
  {
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    if (loader_ == request.loader) {
      return parts_->remote() ? store->BeginLoad(loader_, request.seconds) : Status();
    }
  }
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  HET_RETURN_IF_ERROR(CheckNobodyLoads());
  for (const std::string& name : parts_->catalog.Names()) {
    const auto table = parts_->catalog.Find(name);
    if (table.ok()) HET_RETURN_IF_ERROR(parts_->on_demand.Require({&table.value(), 1}, "a restore"));
  }
  SetLoading(true);
  Status begun = store->BeginLoad(request.loader, request.seconds);
  if (!begun.ok()) {
    SetLoading(false);
    return begun;
  }
  // The store would refuse unsent updates: their rows are about to be dropped.
  ClientDriver::Lock(&parts_->driver)->Reload();
  loader_ = request.loader;
  return Status();
}

Status Checkpoints::ClearForLoad(const std::string& name) {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  HET_RETURN_IF_ERROR(CheckLoading());
  HET_ASSIGN_OR_RETURN(const TablePtr table, parts_->catalog.Find(name));
  return parts_->store.tables->ClearTable(*table->schema);
}

Result<std::map<std::string, LoadedRows>> Checkpoints::LoadRows(const std::string& path,
                                                                const LoadRequest& request) {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  HET_RETURN_IF_ERROR(CheckLoading());
  HET_ASSIGN_OR_RETURN(const auto file, RowReader::Open(path));
  std::map<std::string, LoadedRows> all;
  for (const auto& [name, target] : request.tables) {
    HET_ASSIGN_OR_RETURN(const auto from, file->Find(name));
    HET_ASSIGN_OR_RETURN(const TablePtr to, parts_->catalog.Find(target.to));
    HET_ASSIGN_OR_RETURN(all[name],
                         het::LoadRows(parts_->store.tables.get(), *file, *from, *to->schema, target.slots));
  }
  return all;
}

Status Checkpoints::CommitLoad(const CommitRequest& request) {
  TableStore* const store = parts_->store.tables.get();
  const TableCatalog& catalog = parts_->catalog;
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  if (loader_.empty()) return NobodyLoads(parts_->name);
  for (const auto* numbers : {&request.clock_floors, &request.applies}) {
    for (const auto& [name, number] : *numbers) HET_RETURN_IF_ERROR(catalog.Find(name).status());
  }
  for (const auto& [name, floor] : request.clock_floors) {
    HET_RETURN_IF_ERROR(store->RaiseFloor(*catalog.Find(name).value()->schema, floor));
  }
  HET_RETURN_IF_ERROR(store->CommitLoad(loader_));
  for (const auto& [name, applies] : request.applies) catalog.Find(name).value()->applies.store(applies);
  loader_.clear();
  SetLoading(false);
  return Status();
}

Status Checkpoints::AbortLoad() {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  if (loader_.empty()) return Status();
  const Status aborted = parts_->store.tables->AbortLoad(std::exchange(loader_, ""));
  SetLoading(false);
  return aborted;
}

}  // namespace het
