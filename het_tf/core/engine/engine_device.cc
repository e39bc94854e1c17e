// Engine: calls about tables whose caches are on a device.
#include <algorithm>
#include <new>
#include <nlohmann/json.hpp>

#include "het_tf/core/device/device_tables.h"
#include "het_tf/core/engine/engine_call.h"
#include "het_tf/core/plan/step.h"

namespace het {
namespace {

bool OnDevice(const TablePtr& table) { return table->options.cache && table->options.cache->on_device(); }

Status NotOnDevice(const BatchCall& call) {
  return InvalidArgument("table '" + call.tables[0]->schema->spec().name +
                         "' has no cache in GPU memory; its ids are to be in host memory");
}

}  // namespace

Result<bool> Engine::AllOnDevice(const BatchCall& call) {
  const auto other = std::find_if(call.tables.begin(), call.tables.end(), [&](const TablePtr& table) {
    return OnDevice(table) != OnDevice(call.tables[0]);
  });
  if (other == call.tables.end()) return !call.tables.empty() && OnDevice(call.tables[0]);
  const bool first = OnDevice(call.tables[0]);
  const std::string names[] = {call.tables[0]->schema->spec().name, (*other)->schema->spec().name};
  return InvalidArgument("one call has table '" + names[first ? 0 : 1] +
                         "', whose cache is in GPU memory, and table '" + names[first ? 1 : 0] +
                         "', which has none there; give all of them one het_tf.Cache(device=...)");
}

Status Engine::LookupOnDevice(const BatchCall& call, Span<float* const> out, void* stream, uint64_t* token) {
  HET_RETURN_IF_ERROR(CheckIds(call));
  const auto on_device = AllOnDevice(call);
  if (!on_device.ok()) return on_device.status();
  if (!on_device.value()) return NotOnDevice(call);
  return LookupThere(call, out, CallMemory{true, stream}, token);
}

Status Engine::LookupThere(const BatchCall& call, Span<float* const> out, const CallMemory& memory,
                           uint64_t* token) {
  try {
    std::shared_lock<std::shared_mutex> pool_lock(pool_mutex_);
    HET_RETURN_IF_ERROR(RefuseWhileLoading());
    const uint64_t reserved = token == nullptr ? 0 : ReserveToken();
    {
      const ClientCall call_of_client(this);
      HET_RETURN_IF_ERROR(device_->Lookup(call, out, memory, reserved));
    }
    if (token == nullptr) return Status();
    Remember(reserved, nullptr);
    *token = reserved;
    return Status();
  } catch (const std::bad_alloc&) {
    return OutOfMemory("a lookup");
  }
}

Status Engine::ApplyOnDevice(const BatchCall& call, const ApplyArgs& args, void* stream, bool* skipped) {
  const auto on_device = AllOnDevice(call);
  if (on_device.ok() && on_device.value()) {
    return ApplyThere(call, args, CallMemory{true, stream}, skipped);
  }
  *skipped = false;
  std::unique_ptr<Step> step;
  HET_RETURN_IF_ERROR(Consume(args.token, &step));
  Release(args.token);
  Recycle(std::move(step));
  return on_device.ok() ? NotOnDevice(call) : on_device.status();
}

Status Engine::ApplyThere(const BatchCall& call, const ApplyArgs& args, const CallMemory& memory,
                          bool* skipped) {
  *skipped = false;
  std::unique_ptr<Step> none;  // what belongs to the token is with the device
  HET_RETURN_IF_ERROR(Consume(args.token, &none));
  std::lock_guard<std::mutex> apply_lock(apply_mutex_);
  const ClientCall call_of_client(this);
  Status status = RefuseWhileLoading();
  std::vector<uint8_t> changed;
  try {
    if (status.ok()) status = device_->Apply(call, args, memory, skipped, &changed);
  } catch (const std::bad_alloc&) {
    status = OutOfMemory("HetApplyGrad");
  }
  device_->Release(args.token);
  for (size_t t = 0; t < changed.size(); ++t) call.tables[t]->applies.fetch_add(changed[t]);
  return status;
}

Result<std::string> Engine::DeviceStats(const Table& table) {
  const uint64_t id = table.schema->id();
  const auto stats = device_->Stats(id);
  if (!stats.ok()) return stats.status();
  const HetDevTableState& state = stats.value().state;
  Counters counters = client_->Stats(id);
  counters.inserts = state.inserts;
  counters.evictions = state.evictions;
  counters.transient_rows = stats.value().absent - std::min(stats.value().absent, state.inserts);
  nlohmann::json json = nlohmann::json::parse(counters.ToJson());
  json["device"] = table.options.cache->device;
  json["capacity"] = state.capacity;
  json["rows"] = state.rows;
  json["unsent_rows"] = state.dirty;
  json["invalid_rows"] = state.invalid;
  json["device_bytes"] = state.bytes;
  json["bytes"] = client_->cache(id)->bytes();
  return json.dump();
}

}  // namespace het
