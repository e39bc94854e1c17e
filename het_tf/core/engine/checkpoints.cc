#include "het_tf/core/engine/checkpoints.h"

#include "het_tf/core/checkpoint/save.h"

namespace het {

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

Result<RowFileSummary> Checkpoints::SaveRows(const std::string& path, const SaveRequest& request) {
  const auto lock = parts_->loader.Share();
  HET_RETURN_IF_ERROR(parts_->loader.CheckNobodyLoads());
  std::vector<SavedTable> tables;
  for (const std::string& name : request.tables) {
    HET_ASSIGN_OR_RETURN(const TablePtr table, parts_->catalog.Find(name));
    tables.push_back({table->schema, false, {}});
    const auto since = request.since.find(name);
    if (since == request.since.end()) continue;
    tables.back().increment = true;
    tables.back().since = since->second;
  }
  return het::SaveRows(parts_->store.tables.get(), path, tables, request.partitions);
}

Status Checkpoints::VisitRows(const std::string& name, const std::function<Status(const RowBatch&)>& fn) {
  HET_ASSIGN_OR_RETURN(const TablePtr table, parts_->catalog.Find(name));
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

Status Checkpoints::BeginLoad(const BeginRequest& request) {
  return parts_->loader.Begin(request, [this] { ClientDriver::Lock(&parts_->driver)->Reload(); });
}

Status Checkpoints::ClearForLoad(const std::string& name) {
  const auto lock = parts_->loader.Share();
  HET_RETURN_IF_ERROR(parts_->loader.CheckLoading());
  HET_ASSIGN_OR_RETURN(const TablePtr table, parts_->catalog.Find(name));
  return parts_->store.tables->ClearTable(*table->schema);
}

Result<std::map<std::string, LoadedRows>> Checkpoints::LoadRows(const std::string& path,
                                                                const LoadRequest& request) {
  const auto lock = parts_->loader.Share();
  HET_RETURN_IF_ERROR(parts_->loader.CheckLoading());
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
  return parts_->loader.Commit([&](const std::function<Status()>& commit) -> Status {
    for (const auto* numbers : {&request.clock_floors, &request.applies}) {
      for (const auto& [name, number] : *numbers) HET_RETURN_IF_ERROR(parts_->catalog.Find(name).status());
    }
    for (const auto& [name, floor] : request.clock_floors) {
      HET_RETURN_IF_ERROR(
          parts_->store.tables->RaiseFloor(*parts_->catalog.Find(name).value()->schema, floor));
    }
    HET_RETURN_IF_ERROR(commit());
    for (const auto& [name, applies] : request.applies)
      parts_->catalog.Find(name).value()->applies.store(applies);
    return Status();
  });
}

Status Checkpoints::AbortLoad() { return parts_->loader.Abort(); }

}  // namespace het
