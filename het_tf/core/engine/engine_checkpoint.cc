// Engine: tables into files and back (checkpoint/, and loader.h for the state of a load).
#include "het_tf/core/checkpoint/save.h"
#include "het_tf/core/engine/engine.h"

namespace het {

Result<het::StoreInfo> Engine::StoreInfo() {
  het::StoreInfo info{store_.tables->partitions(), store_.tables->hash_seed(), remote(), {}};
  for (const std::string& name : catalog_.Names()) {
    const auto table = Find(name);
    if (!table.ok()) continue;  // dropped meanwhile
    HET_ASSIGN_OR_RETURN(TableState state, store_.tables->State(*table.value()->schema));
    info.tables[name] = {table.value()->schema, std::move(state), table.value()->applies.load()};
  }
  return info;
}

Result<RowFileSummary> Engine::SaveRows(const std::string& path, const SaveRequest& request) {
  const auto lock = loader_.Share();
  HET_RETURN_IF_ERROR(loader_.CheckNobodyLoads());
  std::vector<SavedTable> tables;
  for (const std::string& name : request.tables) {
    HET_ASSIGN_OR_RETURN(const TablePtr table, Find(name));
    tables.push_back({table->schema, false, {}});
    const auto since = request.since.find(name);
    if (since == request.since.end()) continue;
    tables.back().increment = true;
    tables.back().since = since->second;
  }
  return het::SaveRows(store_.tables.get(), path, tables, request.partitions);
}

Status Engine::VisitRows(const std::string& name, const std::function<Status(const RowBatch&)>& fn) {
  HET_ASSIGN_OR_RETURN(const TablePtr table, Find(name));
  RowBatch batch(*table->schema, size_t{8} << 20);
  for (uint32_t p = 0; p < store_.tables->partitions(); ++p) {
    for (uint64_t cursor = 0; cursor != TableStore::kScanned;) {
      batch.Clear();
      HET_RETURN_IF_ERROR(store_.tables->ScanSome(*table->schema, p, &cursor, &batch));
      HET_RETURN_IF_ERROR(fn(batch));
    }
  }
  return Status();
}

Status Engine::BeginLoad(const BeginRequest& request) {
  return loader_.Begin(request, [this] { ClientDriver::Lock(&driver_)->Reload(); });
}

Status Engine::ClearForLoad(const std::string& name) {
  const auto lock = loader_.Share();
  HET_RETURN_IF_ERROR(loader_.CheckLoading());
  HET_ASSIGN_OR_RETURN(const TablePtr table, Find(name));
  return store_.tables->ClearTable(*table->schema);
}

Result<std::map<std::string, LoadedRows>> Engine::LoadRows(const std::string& path,
                                                           const LoadRequest& request) {
  const auto lock = loader_.Share();
  HET_RETURN_IF_ERROR(loader_.CheckLoading());
  HET_ASSIGN_OR_RETURN(const auto file, RowReader::Open(path));
  std::map<std::string, LoadedRows> all;
  for (const auto& [name, target] : request.tables) {
    HET_ASSIGN_OR_RETURN(const auto from, file->Find(name));
    HET_ASSIGN_OR_RETURN(const TablePtr to, Find(target.to));
    HET_ASSIGN_OR_RETURN(all[name],
                         het::LoadRows(store_.tables.get(), *file, *from, *to->schema, target.slots));
  }
  return all;
}

Status Engine::CommitLoad(const CommitRequest& request) {
  return loader_.Commit([&](const std::function<Status()>& commit) -> Status {
    for (const auto* numbers : {&request.clock_floors, &request.applies}) {
      for (const auto& [name, number] : *numbers) HET_RETURN_IF_ERROR(Find(name).status());
    }
    for (const auto& [name, floor] : request.clock_floors) {
      HET_RETURN_IF_ERROR(store_.tables->RaiseFloor(*Find(name).value()->schema, floor));
    }
    HET_RETURN_IF_ERROR(commit());
    for (const auto& [name, applies] : request.applies) Find(name).value()->applies.store(applies);
    return Status();
  });
}

Status Engine::AbortLoad() { return loader_.Abort(); }

}  // namespace het
