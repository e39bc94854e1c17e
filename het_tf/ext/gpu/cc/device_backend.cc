#include "het_tf/ext/gpu/cc/device_backend.h"

#include <algorithm>

#include "het_tf/core/engine/extensions.h"
#include "het_tf/core/store/local_service.h"

namespace het {
namespace {

Result<int64_t> RowsOnDevice(const TableSchema& schema, const CacheConfig& cache, int64_t bytes,
                             int64_t* least) {
  HET_ASSIGN_OR_RETURN(const auto library, DeviceLibrary::Get());
  HET_ASSIGN_OR_RETURN(HetDevTableConfig config,
                       DeviceConfig(schema, cache, {0, LocalService::kDefaultPartitions, 0}));
  HET_ASSIGN_OR_RETURN(const uint64_t fit, DeviceRowsThatFit(*library, config, static_cast<uint64_t>(bytes)));
  config.capacity = 1;
  uint64_t one = 0;
  HET_RETURN_IF_ERROR(
      library->ToStatus(library->HetDevTableBytes(&config, &one), "table '" + schema.spec().name + "'"));
  *least = static_cast<int64_t>(one);
  return static_cast<int64_t>(fit);
}

}  // namespace

bool AddDeviceBackends() {
  extensions.device = [](ClientDriver* driver, const PartitionId& store) -> std::unique_ptr<TableBackend> {
    return std::make_unique<DeviceBackend>(driver, store);
  };
  extensions.rows_on_device = RowsOnDevice;
  return true;
}

Status DeviceBackend::Lookup(StepCall* call, Span<float* const> out) {
  const ClientDriver::Call client(driver_);
  return tables_.Lookup(call->call, out, call->number);
}

Status DeviceBackend::Tick(StepCall* call, const ApplyArgs& args) {
  const ClientDriver::Call client(driver_);
  const Status status = tables_.Apply(call->call, args, &call->changed);
  tables_.Release(call->number);
  return status;
}

void DeviceBackend::Release(uint64_t number) {
  const ClientDriver::Lock client(driver_);
  tables_.Release(number);
}

Status DeviceBackend::Reserve(const Schema& schema, const TableOptions& options) {
  const ClientDriver::Lock client(driver_);
  return tables_.Add(schema, *options.cache);
}

Status DeviceBackend::Add(const Schema& schema, const TableOptions& options) {
  const ClientDriver::Lock client(driver_);
  return tables_.ConnectWithClient(schema->id(), *options.cache);
}

void DeviceBackend::Remove(uint64_t table) {
  const ClientDriver::Lock client(driver_);
  client->RemoveTable(table);
  tables_.Remove(table);
}

Status DeviceBackend::Flush() {
  const ClientDriver::Call client(driver_);
  return tables_.Flush();
}

Status DeviceBackend::Stats(const Table& table, TableStats* stats) {
  const ClientDriver::Lock client(driver_);
  const uint64_t id = table.schema->id();
  if (!client->HasTable(id)) return TableIsGone(table);
  HET_ASSIGN_OR_RETURN(const DeviceTables::TableStats there, tables_.Stats(id));
  const HetDevTableState& state = there.state;
  CacheStats& cache = stats->cache.emplace();
  cache.counters = client->Stats(id);
  cache.counters.inserts = state.inserts;
  cache.counters.evictions = state.evictions;
  cache.counters.transient_rows = there.absent - std::min(there.absent, state.inserts);
  cache.rows = state.rows;
  cache.capacity = state.capacity;
  cache.unsent_rows = state.dirty;
  cache.bytes = client->cache(id)->bytes();
  cache.pull_bound = client->cache(id)->policy().config().pull_bound;
  cache.push_bound = client->cache(id)->policy().config().push_bound;
  cache.device = {"gpu", state.invalid, state.bytes};
  return Status();
}

}  // namespace het
