// Engine: tables as objects, created, looked at and changed outside of a step.
#include <algorithm>
#include <numeric>

#include "het_tf/core/base/hash.h"
#include "het_tf/core/engine/engine.h"

namespace het {

Status Engine::CreateTable(const TableSpec& spec, const TableOptions& options) {
  HET_ASSIGN_OR_RETURN(const Schema schema, TableSchema::Create(spec));
  if (remote() && !options.cache) {
    return InvalidArgument(
        "table '" + spec.name +
        "' has no cache, and its store is a parameter server; give the layer cache=het_tf.Cache(rows=...)");
  }
  const auto changes = catalog_.LockChanges();
  HET_ASSIGN_OR_RETURN(const TablePtr known, catalog_.FindEqual(*schema, options));
  if (known != nullptr) return spec.limits ? store_.tables->CreateTable(schema) : Status();
  TableBackend& backend = BackendOf(options);
  // First, since it may find no room: then there is no table either.
  HET_RETURN_IF_ERROR(backend.Reserve(schema, options));
  Status status = store_.tables->CreateTable(schema);
  if (status.ok()) status = backend.Add(schema, options);
  if (!status.ok()) {
    backend.Remove(schema->id());
    return status;
  }
  catalog_.Add(schema, options);
  return Status();
}

Status Engine::SetWorkers(const std::string& name, uint32_t workers) {
  HET_ASSIGN_OR_RETURN(const TablePtr table, Find(name));
  const auto& cache = table->options.cache;
  if (!cache || !cache->staleness || cache->workers == workers) return Status();
  HET_RETURN_IF_ERROR(Flush());
  HET_RETURN_IF_ERROR(BackendOf(table->options).SetWorkers(*table, workers));
  catalog_.SetWorkers(table.get(), workers);
  return Status();
}

std::unique_lock<std::mutex> Engine::LockRowNumbers() {
  return remote() ? std::unique_lock<std::mutex>() : std::unique_lock<std::mutex>(apply_mutex_);
}

Status Engine::DropTable(const std::string& name) { return RemoveTable(name, true); }
Status Engine::LeaveTable(const std::string& name) { return RemoveTable(name, !remote()); }

Status Engine::RemoveTable(const std::string& name, bool with_rows) {
  const auto apply_lock = LockRowNumbers();
  const auto changes = catalog_.LockChanges();
  HET_RETURN_IF_ERROR(loader_.RefuseWhileLoading());
  HET_ASSIGN_OR_RETURN(const TablePtr table, Find(name));
  // A push of the table that is still on its way must not find it gone.
  if (remote()) HET_RETURN_IF_ERROR(Flush());
  if (with_rows) HET_RETURN_IF_ERROR(store_.tables->DropTable(*table->schema));
  coming_.Clear();
  on_demand_.Forget(table->schema->id());
  BackendOf(table->options).Remove(table->schema->id());
  catalog_.Remove(name);
  return Status();
}

Result<TablePtr> Engine::FindFlushed(const std::string& name) {
  HET_ASSIGN_OR_RETURN(TablePtr table, Find(name));
  if (table->options.cache) HET_RETURN_IF_ERROR(Flush());
  return table;
}

Result<size_t> Engine::Size(const std::string& name) {
  HET_ASSIGN_OR_RETURN(const TablePtr table, FindFlushed(name));
  return store_.tables->CountRows(*table->schema);
}

Result<size_t> Engine::Bytes(const std::string& name) {
  HET_ASSIGN_OR_RETURN(const TablePtr table, Find(name));
  return store_.tables->CountBytes(*table->schema);
}

Status Engine::Read(const std::string& name, Span<const Key> keys, float* values) {
  HET_ASSIGN_OR_RETURN(const TablePtr table, Find(name));
  const FeatureIds feature{0, keys, std::nullopt};
  float* const out[] = {values};
  return Lookup({Span<const TablePtr>(&table, 1), Span<const FeatureIds>(&feature, 1)},
                Span<float* const>(out, 1), nullptr);
}

Status Engine::ReadStored(const std::string& name, Span<const Key> keys, float* values) {
  HET_RETURN_IF_ERROR(loader_.RefuseWhileLoading());
  HET_ASSIGN_OR_RETURN(const TablePtr table, FindFlushed(name));
  return store_.tables->Read(*table->schema, keys, values);
}

Status Engine::Assign(const std::string& name, Span<const Key> keys, const float* rows, bool with_slots) {
  HET_RETURN_IF_ERROR(loader_.RefuseWhileLoading());
  HET_ASSIGN_OR_RETURN(const TablePtr table, FindFlushed(name));
  const Status status = store_.tables->Assign(*table->schema, keys, rows, with_slots);
  BackendOf(table->options).Invalidate(*table, keys);
  return status;
}

Status Engine::Remove(const std::string& name, Span<const Key> keys, size_t* removed) {
  *removed = 0;
  HET_ASSIGN_OR_RETURN(const TablePtr table, FindFlushed(name));
  const auto apply_lock = LockRowNumbers();
  HET_RETURN_IF_ERROR(loader_.RefuseWhileLoading());
  const auto gone = store_.tables->Remove(*table->schema, keys);
  BackendOf(table->options).Invalidate(*table, keys);
  if (!gone.ok()) return gone.status();
  *removed = gone.value();
  return Status();
}

Status Engine::Clear(const std::string& name) {
  const auto apply_lock = LockRowNumbers();
  const auto changes = catalog_.LockChanges();
  HET_RETURN_IF_ERROR(loader_.RefuseWhileLoading());
  HET_ASSIGN_OR_RETURN(const TablePtr table, Find(name));
  HET_RETURN_IF_ERROR(store_.tables->ClearTable(*table->schema));
  BackendOf(table->options).InvalidateAll(*table);
  return Status();
}

Result<TableRows> Engine::Scan(const std::string& name) {
  HET_ASSIGN_OR_RETURN(const TablePtr table, FindFlushed(name));
  return store_.tables->Scan(*table->schema);
}

Status Engine::Sample(const std::string& name, uint64_t seed, RowBatch* rows) {
  constexpr size_t kRun = 64;
  HET_ASSIGN_OR_RETURN(const TablePtr table, Find(name));
  HET_ASSIGN_OR_RETURN(const TableState state, store_.tables->State(*table->schema));
  const uint64_t total = std::accumulate(state.rows.begin(), state.rows.end(), uint64_t{0});
  // From a place on, one partition after the other in a ring, until the batch is full.
  const auto read = [&](uint32_t partition, uint64_t cursor, RowBatch* to) {
    for (size_t ended = 0; ended < state.rows.size() && to->left() > 0;) {
      HET_RETURN_IF_ERROR(store_.tables->ScanSome(*table->schema, partition, &cursor, to));
      if (cursor != TableStore::kScanned) continue;
      partition = (partition + 1) % static_cast<uint32_t>(state.rows.size());
      cursor = 0;
      ++ended;
    }
    return Status();
  };
  if (total <= rows->capacity()) return read(0, 0, rows);
  RowBatch run(rows->dim(), rows->slot_floats(), std::min(kRun, rows->capacity()));
  // A run is short where rows were removed meanwhile; so many are enough, whatever goes.
  const size_t most = 2 * (rows->capacity() / run.capacity() + 1);
  for (size_t i = 0; i < most && rows->left() > 0; ++i) {
    uint64_t place = Mix64(Mix64(seed) + i) % total;
    uint32_t partition = 0;
    while (place >= state.rows[partition]) place -= state.rows[partition++];
    run.Clear();
    HET_RETURN_IF_ERROR(read(partition, place, &run));
    for (size_t row = 0; row < run.size() && rows->left() > 0; ++row) rows->Add(run, row);
  }
  return Status();
}

Result<TableStats> Engine::Stats(const std::string& name) {
  HET_ASSIGN_OR_RETURN(const TablePtr table, Find(name));
  const TableSchema& schema = *table->schema;
  HET_ASSIGN_OR_RETURN(const size_t rows, store_.tables->CountRows(schema));
  HET_ASSIGN_OR_RETURN(const size_t bytes, store_.tables->CountBytes(schema));
  TableStats stats{name, schema.dim(), table->applies.load(), table->planned.load(), rows, bytes, {}};
  HET_RETURN_IF_ERROR(BackendOf(table->options).Stats(*table, &stats));
  return stats;
}

}  // namespace het
