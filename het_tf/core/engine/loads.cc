#include "het_tf/core/engine/loads.h"

#include <mutex>
#include <utility>

namespace het {
namespace {

Status NobodyLoads(const std::string& name_space) {
  return FailedPrecondition("no load is in progress in namespace '" + name_space +
                            "'; call HetLoadBegin first");
}

}  // namespace

Status Loads::CheckNobodyLoads() const {
  if (loader_.empty()) return Status();
  return FailedPrecondition("namespace '" + parts_->name + "' is being loaded by '" + loader_ +
                            "'; wait until it is done");
}

Status Loads::CheckLoading() const {
  // At a remote store another process may have begun the load.
  return parts_->remote() || !loader_.empty() ? Status() : NobodyLoads(parts_->name);
}

void Loads::SetLoading(bool loading) {
  if (parts_->remote()) return;
  // Running calls on the tables end first, and later ones see the flag.
  steps_->Pause([this, loading] { parts_->loading.store(loading, std::memory_order_release); });
}

Status Loads::Begin(const std::string& loader, uint32_t seconds) {
  TableStore* const store = parts_->store.tables.get();
  {
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    if (loader_ == loader) return parts_->remote() ? store->BeginLoad(loader, seconds) : Status();
  }
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  HET_RETURN_IF_ERROR(CheckNobodyLoads());
  for (const std::string& name : parts_->catalog.Names()) {
    const auto table = parts_->catalog.Find(name);
    if (table.ok()) HET_RETURN_IF_ERROR(parts_->lookahead->Require({&table.value(), 1}, "a restore"));
  }
  SetLoading(true);
  Status begun = store->BeginLoad(loader, seconds);
  if (!begun.ok()) {
    SetLoading(false);
    return begun;
  }
  // The store would refuse unsent updates: their rows are about to be dropped.
  ClientDriver::Lock(&parts_->driver)->Reload();
  loader_ = loader;
  return Status();
}

Status Loads::Clear(const std::string& name) {
  return WhileLoading([&]() -> Status {
    HET_ASSIGN_OR_RETURN(const TablePtr table, parts_->catalog.Find(name));
    return parts_->store.tables->ClearTable(*table->schema);
  });
}

Status Loads::WhileLoading(const std::function<Status()>& fn) {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  HET_RETURN_IF_ERROR(CheckLoading());
  return fn();
}

Status Loads::WithoutLoad(const std::function<Status()>& fn) {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  HET_RETURN_IF_ERROR(CheckNobodyLoads());
  return fn();
}

Status Loads::Commit(const Numbers& clock_floors, const Numbers& applies) {
  TableStore* const store = parts_->store.tables.get();
  const TableCatalog& catalog = parts_->catalog;
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  if (loader_.empty()) return NobodyLoads(parts_->name);
  for (const Numbers* numbers : {&clock_floors, &applies}) {
    for (const auto& [name, number] : *numbers) HET_RETURN_IF_ERROR(catalog.Find(name).status());
  }
  for (const auto& [name, floor] : clock_floors) {
    HET_RETURN_IF_ERROR(store->RaiseFloor(*catalog.Find(name).value()->schema, floor));
  }
  HET_RETURN_IF_ERROR(store->CommitLoad(loader_));
  for (const auto& [name, number] : applies) catalog.Find(name).value()->applies.store(number);
  loader_.clear();
  SetLoading(false);
  return Status();
}

Status Loads::Abort() {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  if (loader_.empty()) return Status();
  const Status aborted = parts_->store.tables->AbortLoad(std::exchange(loader_, ""));
  SetLoading(false);
  return aborted;
}

}  // namespace het
