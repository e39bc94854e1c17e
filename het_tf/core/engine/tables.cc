#include "het_tf/core/engine/tables.h"

#include <algorithm>
#include <numeric>

#include "het_tf/core/base/hash.h"
#include "het_tf/core/engine/extensions.h"

namespace het {

Status Tables::Create(const TableSpec& spec, const TableOptions& options) {
  HET_ASSIGN_OR_RETURN(const Schema schema, TableSchema::Create(spec));
  if (parts_->remote() && !options.cache) {
    return InvalidArgument(
        "table '" + spec.name +
        "' has no cache, and its store is a parameter server; give the layer cache=het_tf.Cache(rows=...)");
  }
  if (options.on_device()) HET_RETURN_IF_ERROR(extensions.CheckDevice());
  const auto changes = parts_->catalog.LockChanges();
  HET_ASSIGN_OR_RETURN(const TablePtr known, parts_->catalog.FindEqual(*schema, options));
  if (known != nullptr) return spec.limits ? parts_->store.tables->CreateTable(schema) : Status();
  TableBackend& backend = parts_->backends.Of(options);
  // Reserve first: if it runs out of memory the store must not have the table.
  HET_RETURN_IF_ERROR(backend.Reserve(schema, options));
  Status status = parts_->store.tables->CreateTable(schema);
  if (status.ok()) status = backend.Add(schema, options);
  if (!status.ok()) {
    backend.Remove(schema->id());
    return status;
  }
  parts_->catalog.Add(schema, options);
  return Status();
}

Status Tables::RemoveTable(const std::string& name, bool with_rows) {
  const auto apply_lock = steps_->LockRowNumbers();
  const auto changes = parts_->catalog.LockChanges();
  HET_RETURN_IF_ERROR(parts_->RefuseWhileLoading());
  HET_ASSIGN_OR_RETURN(const TablePtr table, Find(name));
  // A push in flight must not find its table dropped.
  if (parts_->remote()) HET_RETURN_IF_ERROR(caches_->Flush());
  if (with_rows) HET_RETURN_IF_ERROR(parts_->store.tables->DropTable(*table->schema));
  parts_->lookahead->Forget(table->schema->id());
  parts_->kept.Forget(table->schema->id());
  parts_->backends.Of(table->options).Remove(table->schema->id());
  parts_->catalog.Remove(name);
  return Status();
}

Result<TablePtr> Tables::FindSettled(const std::string& name, const char* what) {
  HET_ASSIGN_OR_RETURN(TablePtr table, Find(name));
  HET_RETURN_IF_ERROR(parts_->lookahead->Require({&table, 1}, what));
  return table;
}

Result<TablePtr> Tables::FindFlushed(const std::string& name) {
  HET_ASSIGN_OR_RETURN(TablePtr table, Find(name));
  if (table->options.cache) HET_RETURN_IF_ERROR(caches_->Flush());
  return table;
}

Result<size_t> Tables::Size(const std::string& name) {
  HET_ASSIGN_OR_RETURN(const TablePtr table, FindFlushed(name));
  HET_ASSIGN_OR_RETURN(const TableSize size, store()->Size(*table->schema));
  return size.rows;
}

Result<size_t> Tables::Bytes(const std::string& name) {
  HET_ASSIGN_OR_RETURN(const TablePtr table, Find(name));
  HET_ASSIGN_OR_RETURN(const TableSize size, store()->Size(*table->schema));
  return size.bytes;
}

Status Tables::Read(const std::string& name, Span<const Key> keys, float* values) {
  HET_ASSIGN_OR_RETURN(const TablePtr table, Find(name));
  const FeatureIds feature{0, keys, std::nullopt};
  float* const out[] = {values};
  return steps_->Lookup({Span<const TablePtr>(&table, 1), Span<const FeatureIds>(&feature, 1)},
                        Span<float* const>(out, 1), nullptr);
}

Status Tables::ReadStored(const std::string& name, Span<const Key> keys, float* values) {
  HET_RETURN_IF_ERROR(parts_->RefuseWhileLoading());
  HET_ASSIGN_OR_RETURN(const TablePtr table, FindFlushed(name));
  return parts_->store.tables->Read(*table->schema, keys, values);
}

Status Tables::Assign(const std::string& name, Span<const Key> keys, const float* rows, bool with_slots,
                      const Clock* ages) {
  HET_RETURN_IF_ERROR(parts_->RefuseWhileLoading());
  HET_ASSIGN_OR_RETURN(const TablePtr table, FindFlushed(name));
  HET_RETURN_IF_ERROR(parts_->lookahead->Require({&table, 1}, "an assignment"));
  const OptimizerSpec& optimizer = table->schema->spec().optimizer;
  if (with_slots && ages == nullptr && table->schema->optimizer().uses_age()) {
    return InvalidArgument("table '" + name + "': rows of " + optimizer.name +
                           " come with slots and without clocks, but a step depends on how often its row was "
                           "updated. Give clocks, as Table.scan() returns them");
  }
  const Status status = parts_->store.tables->Assign(*table->schema, keys, rows, with_slots, ages);
  parts_->backends.Of(table->options).Invalidate(*table, keys);
  return status;
}

Status Tables::Remove(const std::string& name, Span<const Key> keys, size_t* removed) {
  *removed = 0;
  HET_ASSIGN_OR_RETURN(const TablePtr table, FindFlushed(name));
  HET_RETURN_IF_ERROR(parts_->lookahead->Require({&table, 1}, "a removal"));
  const auto apply_lock = steps_->LockRowNumbers();
  HET_RETURN_IF_ERROR(parts_->RefuseWhileLoading());
  const auto gone = parts_->store.tables->Remove(*table->schema, keys);
  parts_->backends.Of(table->options).Invalidate(*table, keys);
  if (!gone.ok()) return gone.status();
  *removed = gone.value();
  return Status();
}

Status Tables::Clear(const std::string& name) {
  const auto apply_lock = steps_->LockRowNumbers();
  const auto changes = parts_->catalog.LockChanges();
  HET_RETURN_IF_ERROR(parts_->RefuseWhileLoading());
  HET_ASSIGN_OR_RETURN(const TablePtr table, FindSettled(name, "a removal"));
  HET_RETURN_IF_ERROR(parts_->store.tables->ClearTable(*table->schema));
  parts_->backends.Of(table->options).InvalidateAll(*table);
  return Status();
}

Result<TableRows> Tables::Scan(const std::string& name) {
  HET_ASSIGN_OR_RETURN(const TablePtr table, FindFlushed(name));
  return parts_->store.tables->Scan(*table->schema);
}

Status Tables::Visit(const std::string& name, const std::function<Status(const RowBatch&)>& fn) {
  HET_ASSIGN_OR_RETURN(const TablePtr table, FindSettled(name, "an export"));
  return store()->Visit(*table->schema, fn);
}

Status Tables::Sample(const std::string& name, uint64_t seed, RowBatch* rows) {
  constexpr size_t kRun = 64;
  HET_ASSIGN_OR_RETURN(const TablePtr table, Find(name));
  HET_ASSIGN_OR_RETURN(const TableState state, parts_->store.tables->State(*table->schema));
  const uint64_t total = std::accumulate(state.rows.begin(), state.rows.end(), uint64_t{0});
  // Reads from a position, one partition after the other in a ring, until the batch is full.
  const auto read = [&](uint32_t partition, uint64_t cursor, RowBatch* to) {
    for (size_t ended = 0; ended < state.rows.size() && to->left() > 0;) {
      HET_RETURN_IF_ERROR(parts_->store.tables->ScanSome(*table->schema, partition, &cursor, to));
      if (cursor != TableStore::kScanned) continue;
      partition = (partition + 1) % static_cast<uint32_t>(state.rows.size());
      cursor = 0;
      ++ended;
    }
    return Status();
  };
  if (total <= rows->capacity()) return read(0, 0, rows);
  RowBatch run(rows->dim(), rows->slot_floats(), std::min(kRun, rows->capacity()));
  // A run may be short if rows were removed meanwhile; this many suffice in any case.
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

Result<TableStats> Tables::Stats(const std::string& name) {
  HET_ASSIGN_OR_RETURN(const TablePtr table, Find(name));
  HET_ASSIGN_OR_RETURN(const TableSize size, store()->Size(*table->schema));
  HET_ASSIGN_OR_RETURN(TableStats stats, StatsHere(*table));
  stats.rows = size.rows;
  stats.bytes = size.bytes;
  return stats;
}

std::vector<TableStats> Tables::StatsHere() {
  std::vector<TableStats> all;
  for (const std::string& name : Names()) {
    const auto table = Find(name);
    if (!table.ok()) continue;
    auto stats = StatsHere(*table.value());
    if (stats.ok()) all.push_back(std::move(stats.value()));
  }
  return all;
}

Result<TableStats> Tables::StatsHere(const Table& table) {
  const TableSchema& schema = *table.schema;
  TableStats stats{schema.spec().name,
                   schema.dim(),
                   table.applies.load(),
                   table.dropped.load(),
                   table.planned.load(),
                   0,
                   0,
                   {}};
  HET_RETURN_IF_ERROR(parts_->backends.Of(table.options).Stats(table, &stats));
  return stats;
}

}  // namespace het
