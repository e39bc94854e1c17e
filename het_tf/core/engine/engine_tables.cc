// Tables as objects: creating, looking at and changing them outside of a step.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "het_tf/core/client/client.h"
#include "het_tf/core/device/device_tables.h"
#include "het_tf/core/engine/engine.h"
#include "het_tf/core/plan/step.h"

namespace het {
namespace {

constexpr int64_t kMaxBound = int64_t{1} << 62;

// A bound in JSON: null is unbounded.
nlohmann::json BoundToJson(int64_t bound) {
  return bound == kUnbounded ? nlohmann::json(nullptr) : nlohmann::json(bound);
}

}  // namespace

std::string TableOptions::ToJson() const {
  nlohmann::json json = nlohmann::json::object();
  if (cache) {
    json["cache"] = {{"capacity", cache->capacity},
                     {"policy", cache->policy},
                     {"admit_after", cache->admit_after},
                     {"pull_bound", BoundToJson(cache->pull_bound)},
                     {"push_bound", BoundToJson(cache->push_bound)},
                     {"write_back_rows", cache->write_back_rows}};
    if (cache->wire != RowFormat::kFloat32) json["cache"]["wire"] = RowFormatName(cache->wire);
    if (cache->checks != "asked") json["cache"]["checks"] = cache->checks;
    if (cache->on_device()) json["cache"]["device"] = cache->device;
  }
  return json.dump();
}

Result<TableOptions> ParseTableOptions(const std::string& text) {
  TableOptions options;
  try {
    const nlohmann::json json = nlohmann::json::parse(text.empty() ? "{}" : text);
    for (const auto& [field, value] : json.items()) {
      if (field != "cache") return InvalidArgument("table options have the unknown field '" + field + "'");
      if (value.is_null()) continue;
      CacheConfig cache;
      for (const auto& [name, setting] : value.items()) {
        const bool bound = name == "pull_bound" || name == "push_bound";
        if (name == "policy") {
          cache.policy = setting.get<std::string>();
          continue;
        }
        if (name == "wire") {
          const auto wire = ParseRowFormat(setting.is_string() ? setting.get<std::string>() : setting.dump());
          if (!wire.ok()) return InvalidArgument("cache option " + wire.status().message());
          cache.wire = wire.value();
          continue;
        }
        if (name == "checks") {
          cache.checks = setting.is_string() ? setting.get<std::string>() : setting.dump();
          HET_RETURN_IF_ERROR(CheckChecksName(cache.checks));
          continue;
        }
        if (name == "device") {
          cache.device = setting.is_string() ? setting.get<std::string>() : setting.dump();
          if (cache.device == "cpu" || cache.device == "gpu") continue;
          return InvalidArgument("cache option device is '" + cache.device +
                                 "'; it must be \"cpu\" or \"gpu\"");
        }
        if (bound && setting.is_null()) {
          (name == "pull_bound" ? cache.pull_bound : cache.push_bound) = kUnbounded;
          continue;
        }
        const int64_t number = setting.is_number_integer() ? setting.get<int64_t>() : -1;
        if (number < 0 || number > kMaxBound) {
          return InvalidArgument(name + " is " + setting.dump() + "; it must be an integer >= 0" +
                                 (bound ? ", or null for unbounded" : ""));
        }
        if (name == "capacity") {
          cache.capacity = static_cast<size_t>(number);
        } else if (name == "admit_after") {
          cache.admit_after = static_cast<uint32_t>(std::min<int64_t>(number, 255));
        } else if (name == "write_back_rows") {
          cache.write_back_rows = static_cast<size_t>(number);
        } else if (name == "pull_bound") {
          cache.pull_bound = number;
        } else if (name == "push_bound") {
          cache.push_bound = number;
        } else {
          return InvalidArgument("cache options have the unknown field '" + name + "'");
        }
      }
      HET_RETURN_IF_ERROR(CheckPolicyName(cache.policy));
      if (cache.on_device() && cache.capacity == 0) {
        return InvalidArgument(
            "cache options have capacity 0 and device \"gpu\"; a cache in GPU memory has at least 1 row. "
            "Give "
            "cache_rows, or device \"cpu\"");
      }
      if (cache.on_device() && cache.wire != RowFormat::kFloat32) {
        return InvalidArgument(
            std::string("cache options have wire \"") + RowFormatName(cache.wire) +
            "\" and device \"gpu\"; rows of a cache in GPU memory travel as float32. Leave "
            "wire out, or give device \"cpu\"");
      }
      if (cache.on_device() && cache.checks != "asked") {
        return InvalidArgument(
            "cache options have checks \"told\" and device \"gpu\"; rows in GPU memory are asked about. Give "
            "checks \"asked\", or device \"cpu\"");
      }
      options.cache = cache;
    }
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument(std::string("table options are not valid JSON: ") + error.what());
  }
  return options;
}

Status Engine::CreateTable(const TableSpec& spec, const TableOptions& options) {
  auto schema = TableSchema::Create(spec);
  if (!schema.ok()) return schema.status();
  if (service_ == nullptr && !options.cache) {
    return InvalidArgument("table '" + spec.name +
                           "' has no cache, and its store is a parameter server; give the layer cache_rows");
  }
  std::lock_guard<std::mutex> admin_lock(admin_mutex_);
  if (const auto known = Find(spec.name); known.ok()) {
    const std::string here = known.value()->schema->ToJson() + " " + known.value()->options.ToJson();
    const std::string wanted = schema.value()->ToJson() + " " + options.ToJson();
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

Result<std::string> Engine::Stats(const std::string& name) {
  auto table = Find(name);
  if (!table.ok()) return table.status();
  const Table& t = *table.value();
  auto rows = store_->CountRows(*t.schema);
  auto bytes = store_->CountBytes(*t.schema);
  if (!rows.ok()) return rows.status();
  if (!bytes.ok()) return bytes.status();
  nlohmann::json json = {
      {"table", name},        {"dim", t.schema->dim()}, {"applies", t.applies.load()},
      {"rows", rows.value()}, {"bytes", bytes.value()}, {"mode", t.options.cache ? "cached" : "direct"}};
  if (t.options.cache) {
    std::lock_guard<std::mutex> lock(client_mutex_);
    if (!client_->HasTable(t.schema->id())) return TableIsGone(t);
    if (t.options.cache->on_device()) {
      auto stats = DeviceStats(t);
      if (!stats.ok()) return stats.status();
      json["cache"] = nlohmann::json::parse(stats.value());
      return json.dump();
    }
    const TableCache& cache = *client_->cache(t.schema->id());
    json["cache"] = nlohmann::json::parse(client_->Stats(t.schema->id()).ToJson());
    json["cache"]["wire"] = RowFormatName(cache.config().wire);
    json["cache"]["rows"] = cache.lines().size();
    json["cache"]["unsent_rows"] = cache.Unsent();
    json["cache"]["bytes"] = cache.bytes();
  }
  return json.dump();
}

}  // namespace het
