#include "het_tf/ext/gpu/cc/device_tables.h"

#include <algorithm>

#include "het_tf/ext/gpu/cc/device_step.h"

namespace het {
namespace {

// Bytes of updates that a flush takes off the device at a time.
constexpr size_t kTakeBytes = size_t{16} << 20;

}  // namespace

DeviceTables::DeviceTables(Client* client, const PartitionId& store)
    : client_(client), devices_(client), store_(store), fetched_(std::make_unique<Fetched>()) {}

DeviceTables::~DeviceTables() {
  if (context_ == nullptr) return;
  calls_.Clear(library_, context_);
  for (auto& [id, table] : tables_) library_->HetDevDestroyTable(context_, table->handle);
  for (HetDevTable* table : doomed_) library_->HetDevDestroyTable(context_, table);
  library_->HetDevFree(context_, floats_.memory);
  library_->HetDevDestroyContext(context_);
}

Status DeviceTables::Open() {
  if (context_ != nullptr) return Status();
  HET_ASSIGN_OR_RETURN(auto library, DeviceLibrary::Get());
  HET_RETURN_IF_ERROR(library->Describe().status());
  HET_RETURN_IF_ERROR(
      library->ToStatus(library->HetDevCreateContext(library->device(), &context_), "opening the GPU"));
  library_ = library;
  return Status();
}

// --- tables

Status DeviceTables::Add(const Schema& schema, const CacheConfig& config) {
  HET_RETURN_IF_ERROR(Open());
  bool went = false;
  HET_RETURN_IF_ERROR(Begin(nullptr, &went));
  exports_.reserve(tables_.size() + 1);
  doomed_.reserve(tables_.size() + 1);
  auto table = std::make_unique<DeviceTable>(schema, store_.count);
  HET_ASSIGN_OR_RETURN(const HetDevTableConfig device_config, DeviceConfig(*schema, config, store_));
  const int answer = library_->HetDevCreateTable(context_, &device_config, &table->handle);
  if (answer == HET_DEV_OUT_OF_MEMORY) {
    return Status(
        Code::kResourceExhausted,
        "the cache of table '" + table->name() + "' with " + std::to_string(config.capacity) +
            " rows does not fit into GPU memory: " + library_->HetDevError() +
            ". Give het_tf.Cache fewer rows, use a smaller dim, or tell TensorFlow to leave memory free "
            "(tf.config.experimental.set_memory_growth)");
  }
  if (answer != HET_DEV_OK) return Failed(answer, "making the cache of table '" + table->name() + "'");
  tables_[schema->id()] = std::move(table);
  return Status();
}

Status DeviceTables::ConnectWithClient(uint64_t id, const CacheConfig& config) {
  DeviceTable* const table = tables_.at(id).get();
  HET_RETURN_IF_ERROR(devices_.AddTable(table->shared_schema(), config, table));
  table->counters = &client_->cache(id)->counters();
  return Status();
}

void DeviceTables::Remove(uint64_t id) {
  const auto it = tables_.find(id);
  if (it == tables_.end()) return;
  const DeviceTable* const table = it->second.get();
  exports_.erase(std::remove_if(exports_.begin(), exports_.end(),
                                [table](const Export& given) { return given.table == table; }),
                 exports_.end());
  if (table->handle != nullptr) doomed_.push_back(table->handle);
  tables_.erase(it);
  if (exports_.empty()) DestroyDoomed();
}

void DeviceTables::DestroyDoomed() {
  if (doomed_.empty()) return;
  calls_.Clear(library_, context_);
  for (HetDevTable* table : doomed_) library_->HetDevDestroyTable(context_, table);
  doomed_.clear();
}

Result<DeviceTables::TableStats> DeviceTables::Stats(uint64_t id) {
  DeviceTable* const table = tables_.at(id).get();
  TableStats stats;
  if (!lost_.ok()) return stats;
  stats.absent = table->absent;
  bool went = false;
  HET_RETURN_IF_ERROR(Begin(nullptr, &went));
  const int answer = library_->HetDevState(context_, table->handle, nullptr, &stats.state);
  if (answer != HET_DEV_OK) return Failed(answer, "counting the rows of table '" + table->name() + "'");
  return stats;
}

HetDevRowState DeviceTables::Inspect(uint64_t id, Key key, float* row) {
  HetDevRowState state = {};
  static_cast<void>(Collect());
  PushExports();
  library_->HetDevInspect(context_, tables_.at(id)->handle, key, nullptr, &state, row, nullptr);
  return state;
}

// --- the beginning of every call

Status DeviceTables::Failed(int answer, const std::string& doing) {
  Status status = library_->ToStatus(answer, doing);
  if (answer != HET_DEV_FAILED) return status;
  uint64_t ticks = 0;
  for (auto& [id, table] : tables_) ticks += table->Lost();
  lost_ =
      Status(Code::kInternal,
             status.message() + ". The GPU is lost to this process, and with it " + std::to_string(ticks) +
                 " ticks that had not been sent. End the process, and go on from a checkpoint");
  return lost_;
}

Status DeviceTables::Begin(HetDevStream stream, bool* went) {
  HET_RETURN_IF_ERROR(Collect());
  PushExports();
  HET_RETURN_IF_ERROR(lost_);
  DestroyDoomed();
  return CatchUp(stream, went);
}

Status DeviceTables::CatchUp(HetDevStream stream, bool* went) {
  for (auto& [id, table] : tables_) {
    bool rows_went = false;
    const int answer = table->CatchUp(*library_, context_, stream, &rows_went);
    if (rows_went) calls_.Changed();
    *went = *went || rows_went;
    if (answer != HET_DEV_OK)
      return Failed(answer, "bringing rows of table '" + table->name() + "' up to date");
  }
  return Status();
}

// --- updates that left the device

void DeviceTables::Gave(const HetDevExport& given, Span<DeviceTable* const> tables, bool evicted) {
  for (uint32_t i = 0; i < given.n; ++i) {
    DeviceTable* const table = tables[given.of[i].use];
    table->Gave(given.of[i]);
    exports_.push_back({table, given.of[i], evicted, true});  // there is room
  }
}

Status DeviceTables::Collect() {
  const auto there = [](const Export& given) { return given.there; };
  if (std::all_of(exports_.begin(), exports_.end(), there)) return Status();
  const int answer = library_->HetDevCollect(context_);
  if (answer != HET_DEV_OK) {
    exports_.erase(std::stable_partition(exports_.begin(), exports_.end(), there), exports_.end());
    return Failed(answer, "sending the updates of the last step");
  }
  for (Export& given : exports_) {
    if (given.there) continue;
    given.there = true;
    given.table->Gave(given.updates);
    // An update within its push bound is exported only because its row stayed with the call.
    const SyncPolicy sync = client_->cache(given.table->schema().id())->policy().sync();
    for (uint64_t i = 0; i < given.updates.n; ++i)
      given.left += !sync.PushNow(given.updates.ticks[i], given.updates.clocks[i]);
  }
  return Status();
}

void DeviceTables::PushExports() {
  if (exports_.empty()) return;
  DevicePush push;
  push.parts.reserve(exports_.size());
  for (const Export& given : exports_) {
    // Do not send updates of a table that has been cleared.
    if (given.table->dropped()) continue;
    push.parts.push_back({given.table->schema().id(), given.updates.n, given.updates.keys,
                          given.updates.ticks, given.updates.clocks, given.updates.updates, given.evicted});
  }
  // Fails only for a table that is not on a device.
  static_cast<void>(devices_.Push(push));
  for (const Export& given : exports_) {
    if (given.table->counters == nullptr || given.table->dropped()) continue;
    given.table->counters->bound_push -= given.left;
    given.table->counters->evict_push += given.left;
  }
  exports_.clear();
}

Status DeviceTables::Flush() {
  if (tables_.empty()) return Status();
  bool went = false;
  HET_RETURN_IF_ERROR(Begin(nullptr, &went));
  HET_RETURN_IF_ERROR(client_->Flush());  // what the last step has left to send
  for (auto& [id, held] : tables_) {
    DeviceTable* const table = held.get();
    const uint64_t rows = std::max<uint64_t>(1, kTakeBytes / (table->schema().row_floats() * sizeof(float)));
    for (;;) {
      // Apply what the last round's replies brought: dropped rows must not be sent into their table's new
      // life.
      HET_RETURN_IF_ERROR(CatchUp(nullptr, &went));
      HetDevExport updates = {};
      const int answer = library_->HetDevTake(context_, table->handle, rows, nullptr, &updates);
      if (answer != HET_DEV_OK) return Failed(answer, "a flush of table '" + table->name() + "'");
      if (updates.n == 0) break;
      Gave(updates, Span<DeviceTable* const>(&table, 1), false);
      PushExports();
      // Send them now: frames of all unsent updates at once would take as much memory.
      HET_RETURN_IF_ERROR(client_->Flush());
    }
  }
  return Status();
}

Status DeviceTables::StartStampsAgain() {
  HET_RETURN_IF_ERROR(Flush());
  for (auto& [id, table] : tables_) {
    uint64_t discarded = 0;
    const int answer =
        library_->HetDevForget(context_, table->handle, HET_DEV_DROP, nullptr, nullptr, &discarded);
    if (answer != HET_DEV_OK) return Failed(answer, "emptying the cache of table '" + table->name() + "'");
  }
  calls_.StartStampsAgain();
  return Status();
}

}  // namespace het
