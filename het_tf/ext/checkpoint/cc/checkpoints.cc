#include "het_tf/ext/checkpoint/cc/checkpoints.h"

#include <numeric>

#include "het_tf/ext/checkpoint/cc/save.h"

namespace het {

Result<StoreInfo> StoreInfoOf(Engine* engine) {
  TableStore* const store = engine->tables().store();
  StoreInfo info{store->partitions(), store->hash_seed(), engine->remote(), {}};
  for (const std::string& name : engine->tables().Names()) {
    const auto table = engine->tables().Find(name);
    if (!table.ok()) continue;  // dropped meanwhile
    HET_ASSIGN_OR_RETURN(TableState state, store->State(*table.value()->schema));
    info.tables[name] = {table.value()->schema, std::move(state), table.value()->applies.load()};
  }
  return info;
}

Result<std::map<std::string, ChangesCount>> CountChanges(
    Engine* engine, const std::map<std::string, std::vector<Position>>& since) {
  TableStore* const store = engine->tables().store();
  std::vector<uint32_t> all(store->partitions());
  std::iota(all.begin(), all.end(), 0);
  std::map<std::string, ChangesCount> counts;
  for (const auto& [name, positions] : since) {
    HET_ASSIGN_OR_RETURN(const TablePtr table, engine->tables().Find(name));
    HET_ASSIGN_OR_RETURN(counts[name], store->CountChanges(*table->schema, positions, all));
  }
  return counts;
}

Result<RowFileSummary> SaveRows(Engine* engine, const std::string& path, const SaveRequest& request) {
  RowFileSummary saved;
  HET_RETURN_IF_ERROR(engine->loads().WithoutLoad([&]() -> Status {
    std::vector<SavedTable> tables;
    for (const std::string& name : request.tables) {
      HET_ASSIGN_OR_RETURN(const TablePtr table, engine->tables().FindSettled(name, "a save"));
      tables.push_back({table->schema});
      const auto since = request.since.find(name);
      if (since != request.since.end()) tables.back().since = since->second;
    }
    HET_ASSIGN_OR_RETURN(saved, SaveRows(engine->tables().store(), path, tables, request.partitions));
    return Status();
  }));
  return saved;
}

Result<std::map<std::string, LoadedRows>> LoadRows(Engine* engine, const std::string& path,
                                                   const LoadRequest& request) {
  std::map<std::string, LoadedRows> all;
  HET_RETURN_IF_ERROR(engine->loads().WhileLoading([&]() -> Status {
    HET_ASSIGN_OR_RETURN(const auto file, RowReader::Open(path));
    for (const auto& [name, target] : request.tables) {
      HET_ASSIGN_OR_RETURN(const auto from, file->Find(name));
      HET_ASSIGN_OR_RETURN(const TablePtr to, engine->tables().Find(target.to));
      HET_ASSIGN_OR_RETURN(all[name],
                           LoadRows(engine->tables().store(), *file, *from, *to->schema, target.slots));
    }
    return Status();
  }));
  return all;
}

}  // namespace het
