// Tables as objects: creating, looking at and changing them outside of a step.
#include "het_tf/core/client/client.h"
#include "het_tf/core/device/device_tables.h"
#include "het_tf/core/engine/engine.h"
#include "het_tf/core/plan/step.h"

namespace het {
Status Engine::CreateTable(const TableSpec& spec, const TableOptions& options) {
  auto schema = TableSchema::Create(spec);
  if (!schema.ok()) return schema.status();
  if (service_ == nullptr && !options.cache) {
    return InvalidArgument("table '" + spec.name +
                           "' has no cache, and its store is a parameter server; give the layer cache_rows");
  }
  std::lock_guard<std::mutex> admin_lock(admin_mutex_);
  if (const auto known = Find(spec.name); known.ok()) {
    const std::string here = known.value()->schema->ToJson() + " " + ToJson(known.value()->options);
    const std::string wanted = schema.value()->ToJson() + " " + ToJson(options);
    if (here == wanted) return spec.limits ? store_->CreateTable(schema.value()) : Status();
    return Status(
        Code::kAlreadyExists,
        "table '" + spec.name + "' exists with another spec\n  exists: " + here + "\n  wanted: " + wanted +
            "\nGive the tables different names, make the specs equal, or call het_tf.reset() first");
  }
  const uint64_t id = schema.value()->id();
  const bool on_device = options.cache && options.cache->on_device();
  if (on_device) {
    // First, since it may find no room: then there is no table either.
    std::lock_guard<std::mutex> client_lock(client_mutex_);
    HET_RETURN_IF_ERROR(device_->Add(schema.value(), *options.cache));
  }
  const Status created = store_->CreateTable(schema.value());
  std::lock_guard<std::mutex> client_lock(client_mutex_);
  if (!created.ok()) {
    if (on_device) device_->Remove(id);
    return created;
  }
  std::lock_guard<std::mutex> lock(tables_mutex_);
  if (on_device) {
    const Status connected = device_->ConnectWithClient(id, *options.cache);
    if (!connected.ok()) device_->Remove(id);
    HET_RETURN_IF_ERROR(connected);
  } else if (options.cache) {
    HET_RETURN_IF_ERROR(client_->AddTable(schema.value(), *options.cache));
  }
  auto table = std::make_shared<Table>();
  table->schema = schema.value();
  table->options = options;
  tables_[spec.name] = std::move(table);
  generation_.fetch_add(1);
  return Status();
}

Status Engine::SetBounds(const std::string& table, int64_t pull_bound, int64_t push_bound) {
  auto found = Find(table);
  if (!found.ok()) return found.status();
  if (!found.value()->options.cache) return Status();
  HET_RETURN_IF_ERROR(Flush());
  std::lock_guard<std::mutex> client_lock(client_mutex_);
  std::lock_guard<std::mutex> lock(tables_mutex_);
  const uint64_t id = found.value()->schema->id();
  if (!client_->HasTable(id)) return TableIsGone(*found.value());
  client_->cache(id)->set_bounds(pull_bound, push_bound);
  found.value()->options.cache->pull_bound = pull_bound;
  found.value()->options.cache->push_bound = push_bound;
  return Status();
}

Result<TablePtr> Engine::Find(const std::string& name) const {
  std::lock_guard<std::mutex> lock(tables_mutex_);
  const auto it = tables_.find(name);
  if (it != tables_.end()) return it->second;
  std::string known;
  for (const auto& entry : tables_) known += (known.empty() ? "'" : ", '") + entry.first + "'";
  return Status(Code::kNotFound, "no table '" + name + "' in namespace '" + name_ + "'; " +
                                     (known.empty() ? "there are none" : "there are " + known) +
                                     ". Build the layer that declares it, or load a checkpoint");
}

std::vector<std::string> Engine::TableNames() const {
  std::lock_guard<std::mutex> lock(tables_mutex_);
  std::vector<std::string> names;
  for (const auto& entry : tables_) names.push_back(entry.first);
  return names;
}

std::unique_lock<std::mutex> Engine::LockRowNumbers() {
  return remote() ? std::unique_lock<std::mutex>() : std::unique_lock<std::mutex>(apply_mutex_);
}

Status Engine::DropTable(const std::string& name) {
  const auto apply_lock = LockRowNumbers();
  std::lock_guard<std::mutex> admin_lock(admin_mutex_);
  HET_RETURN_IF_ERROR(RefuseWhileLoading());
  auto table = Find(name);
  if (!table.ok()) return table.status();
  // A push of the table that is still on its way must not find it gone.
  if (remote()) HET_RETURN_IF_ERROR(Flush());
  HET_RETURN_IF_ERROR(store_->DropTable(*table.value()->schema));
  std::lock_guard<std::mutex> client_lock(client_mutex_);
  std::lock_guard<std::mutex> lock(tables_mutex_);
  client_->RemoveTable(table.value()->schema->id());
  device_->Remove(table.value()->schema->id());
  tables_.erase(name);
  generation_.fetch_add(1);
  return Status();
}

Result<size_t> Engine::Size(const std::string& name) {
  auto table = Find(name);
  if (!table.ok()) return table.status();
  if (table.value()->options.cache) HET_RETURN_IF_ERROR(Flush());
  return store_->CountRows(*table.value()->schema);
}

Result<size_t> Engine::Bytes(const std::string& name) {
  auto table = Find(name);
  if (!table.ok()) return table.status();
  return store_->CountBytes(*table.value()->schema);
}

Status Engine::Read(const std::string& name, Span<const Key> keys, float* values) {
  auto table = Find(name);
  if (!table.ok()) return table.status();
  const TablePtr tables[] = {table.value()};
  const FeatureIds features[] = {{0, keys, std::nullopt}};
  float* const out[] = {values};
  return Lookup({Span<const TablePtr>(tables, 1), Span<const FeatureIds>(features, 1)},
                Span<float* const>(out, 1), nullptr);
}

void Engine::Invalidate(const Table& table, Span<const Key> keys) {
  if (!table.options.cache) return;
  std::lock_guard<std::mutex> lock(client_mutex_);
  client_->Invalidate(table.schema->id(), keys);
}

Status Engine::Assign(const std::string& name, Span<const Key> keys, const float* rows, bool with_slots) {
  HET_RETURN_IF_ERROR(RefuseWhileLoading());
  auto table = Find(name);
  if (!table.ok()) return table.status();
  if (table.value()->options.cache) HET_RETURN_IF_ERROR(Flush());
  const Status status = store_->Assign(*table.value()->schema, keys, rows, with_slots);
  Invalidate(*table.value(), keys);
  return status;
}

Status Engine::Remove(const std::string& name, Span<const Key> keys, size_t* removed) {
  *removed = 0;
  auto table = Find(name);
  if (!table.ok()) return table.status();
  if (table.value()->options.cache) HET_RETURN_IF_ERROR(Flush());
  const auto apply_lock = LockRowNumbers();
  HET_RETURN_IF_ERROR(RefuseWhileLoading());
  auto gone = store_->Remove(*table.value()->schema, keys);
  Invalidate(*table.value(), keys);
  if (!gone.ok()) return gone.status();
  *removed = gone.value();
  return Status();
}

Status Engine::Clear(const std::string& name) {
  const auto apply_lock = LockRowNumbers();
  std::lock_guard<std::mutex> admin_lock(admin_mutex_);
  HET_RETURN_IF_ERROR(RefuseWhileLoading());
  auto table = Find(name);
  if (!table.ok()) return table.status();
  HET_RETURN_IF_ERROR(store_->ClearTable(*table.value()->schema));
  std::lock_guard<std::mutex> lock(client_mutex_);
  if (table.value()->options.cache && client_->HasTable(table.value()->schema->id()))
    client_->ForgetTable(table.value()->schema->id());
  return Status();
}

Result<TableRows> Engine::Scan(const std::string& name) {
  auto table = Find(name);
  if (!table.ok()) return table.status();
  if (table.value()->options.cache) HET_RETURN_IF_ERROR(Flush());
  return store_->Scan(*table.value()->schema);
}

Result<TableStats> Engine::Stats(const std::string& name) {
  HET_ASSIGN_OR_RETURN(const TablePtr table, Find(name));
  const TableSchema& schema = *table->schema;
  HET_ASSIGN_OR_RETURN(const size_t rows, store_->CountRows(schema));
  HET_ASSIGN_OR_RETURN(const size_t bytes, store_->CountBytes(schema));
  TableStats stats{name, schema.dim(), table->applies.load(), rows, bytes, {}};
  if (!table->options.cache) return stats;
  stats.cache.emplace();
  std::lock_guard<std::mutex> lock(client_mutex_);
  if (!client_->HasTable(schema.id())) return TableIsGone(*table);
  if (table->options.on_device()) {
    HET_RETURN_IF_ERROR(DeviceStats(*table, &*stats.cache));
    return stats;
  }
  const TableCache& cache = *client_->cache(schema.id());
  *stats.cache = {client_->Stats(schema.id()),
                  cache.lines().size(),
                  cache.Unsent(),
                  cache.bytes(),
                  cache.config().wire,
                  {}};
  return stats;
}

}  // namespace het
