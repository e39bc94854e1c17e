#include "het_tf/ext/ps/module/value.h"

#include <cstdlib>
#include <exception>
#include <map>
#include <mutex>

#include "het_tf/core/store/chunk.h"
#include "het_tf/core/store/local_service.h"
#include "het_tf/ext/ps/module/command.h"
#include "het_tf/ext/ps/module/limits.h"

namespace het::module {
namespace {

RedisModuleType* partition_type = nullptr;

// Every partition of the process, for INFO. The mutex protects against values that the server frees in the
// background; partitions do not change while the main thread sums them up. Never destroyed: the background
// thread may run while the process exits.
struct Registry {
  std::mutex mutex;
  std::map<const Partition*, Place> partitions;
};
Registry& registry = *new Registry;

Partition* Register(std::unique_ptr<Partition> partition, Place place) {
  std::lock_guard<std::mutex> lock(registry.mutex);
  registry.partitions.emplace(partition.get(), std::move(place));
  return partition.release();
}

// Out of memory while the server saves: exit, as the server itself does. In the child that writes a snapshot
// this fails the snapshot; the API has no other way to report it.
[[noreturn]] void GiveUp(RedisModuleIO* io) {
  redis.LogIOError(io, "warning", "het: out of memory while saving a partition");
  std::abort();
}

void* RdbLoad(RedisModuleIO* io, int encoding_version) {
  if (encoding_version != kEncodingVersion) {
    redis.LogIOError(io, "warning",
                     "het: a partition in encoding %d; this module reads encoding %d. Remedy: the module's "
                     "version that wrote it",
                     encoding_version, kEncodingVersion);
    return nullptr;
  }
  try {
    ChunkReader chunks(RandomId());
    while (!chunks.complete()) {
      size_t size = 0;
      char* bytes = redis.LoadStringBuffer(io, &size);
      if (bytes == nullptr || redis.IsIOError(io) != 0) {
        if (bytes != nullptr) redis.Free(bytes);
        redis.LogIOError(io, "warning", "het: a partition is cut off");
        return nullptr;
      }
      Status status;
      try {
        status = chunks.Add(Span<const uint8_t>(reinterpret_cast<const uint8_t*>(bytes), size));
      } catch (...) {
        redis.Free(bytes);
        throw;
      }
      redis.Free(bytes);
      if (!status.ok()) {
        redis.LogIOError(io, "warning", "het: %s", status.message().c_str());
        return nullptr;
      }
    }
    Place place;
    if (const RedisModuleString* name = redis.GetKeyNameFromIO(io)) place.key = Text(name);
    place.db = redis.GetDbIdFromIO(io);
    if (chunks.clamped() > 0) {
      redis.LogIOError(io, "warning", "het: %s", ClampedClocks(place.key, chunks.clamped()).c_str());
    }
    return Register(chunks.Take(), std::move(place));
  } catch (const std::exception& error) {
    redis.LogIOError(io, "warning", "het: a partition could not be loaded: %s", error.what());
    return nullptr;
  }
}

void RdbSave(RedisModuleIO* io, void* value) {
  try {
    ChunkWriter chunks(*static_cast<Partition*>(value));
    for (Bytes chunk; chunks.Next(&chunk);) {
      redis.SaveStringBuffer(io, reinterpret_cast<const char*>(chunk.data()), chunk.size());
    }
  } catch (...) {
    GiveUp(io);
  }
}

void AofRewrite(RedisModuleIO* io, RedisModuleString* key, void* value) {
  try {
    const auto& partition = *static_cast<Partition*>(value);
    const PartitionId& id = partition.id();
    redis.EmitAOF(io, "HET.TABLE", "scccc", key, "CREATE", std::to_string(id.index).c_str(),
                  std::to_string(id.count).c_str(), std::to_string(id.hash_seed).c_str());
    ChunkWriter chunks(partition);
    for (Bytes chunk; chunks.Next(&chunk);) {
      redis.EmitAOF(io, "HET.LOAD", "sb", key, reinterpret_cast<const char*>(chunk.data()), chunk.size());
    }
  } catch (...) {
    GiveUp(io);
  }
}

size_t MemUsage(const void* value) { return MemoryOf(*static_cast<const Partition*>(value)); }

void Free(void* value) {
  auto* partition = static_cast<Partition*>(value);
  {
    std::lock_guard<std::mutex> lock(registry.mutex);
    registry.partitions.erase(partition);
  }
  delete partition;
}

// The server frees a value in the background above 64 units of work: here, above 4 MB.
size_t FreeEffort(RedisModuleString*, const void* value) {
  return 1 + (MemoryOf(*static_cast<const Partition*>(value)) >> 16);
}

// Equal for partitions with the same content, in any order of rows.
void Digest(RedisModuleDigest* digest, void* value) {
  auto add = [digest](const auto& plain) {
    redis.DigestAddStringBuffer(digest, reinterpret_cast<const char*>(&plain), sizeof(plain));
  };
  const auto& partition = *static_cast<Partition*>(value);
  add(partition.id().index);
  add(partition.id().count);
  add(partition.id().hash_seed);
  redis.DigestEndSequence(digest);
  for (const auto& [client, state] : partition.clients().all()) {
    add(client.high);
    add(client.low);
    add(state.last_seq);
    add(state.time);
    redis.DigestEndSequence(digest);
  }
  if (const LoadMark* mark = partition.loading()) {
    redis.DigestAddStringBuffer(digest, mark->loader.data(), mark->loader.size());
    add(mark->since);
    add(mark->until);
    redis.DigestEndSequence(digest);
  }
  try {
    for (const auto& [table, shard] : partition.shards()) {
      const std::string spec = shard->schema().ToJson(shard->limits());
      redis.DigestAddStringBuffer(digest, spec.data(), spec.size());
      add(shard->epoch());
      add(shard->clock_floor());
      redis.DigestEndSequence(digest);
      const RowStore& rows = shard->rows();
      for (uint32_t row = 0; row < rows.end(); ++row) {
        if (!rows.live(row)) continue;
        const RowMeta& meta = rows.meta(row);
        add(table);
        add(meta.key);
        add(meta.clock);
        add(meta.last_used);
        add(meta.count);
        redis.DigestAddStringBuffer(digest, reinterpret_cast<const char*>(rows.data(row)),
                                    rows.row_floats() * sizeof(float));
        redis.DigestEndSequence(digest);
      }
    }
  } catch (const std::exception&) {
    redis.DigestAddLongLong(digest, -1);  // differs from every real digest
    redis.DigestEndSequence(digest);
  }
}

}  // namespace

size_t RowsOf(const Partition& partition) {
  size_t rows = 0;
  for (const auto& [table, shard] : partition.shards()) rows += shard->rows().size();
  return rows;
}

size_t MemoryOf(const Partition& partition) {
  constexpr size_t kMapNode = 4 * sizeof(void*);
  return sizeof(Partition) + partition.bytes() + partition.soft_bytes() +
         partition.shards().size() * (sizeof(Shard) + kMapNode) +
         partition.clients().all().size() * (sizeof(ClientId) + sizeof(ClientState) + kMapNode);
}

bool RegisterType(RedisModuleCtx* ctx) {
  TypeMethods methods;
  methods.rdb_load = RdbLoad;
  methods.rdb_save = RdbSave;
  methods.aof_rewrite = AofRewrite;
  methods.mem_usage = MemUsage;
  methods.digest = Digest;
  methods.free = Free;
  methods.free_effort = FreeEffort;
  partition_type = redis.CreateDataType(ctx, kTypeName, kEncodingVersion, &methods);
  return partition_type != nullptr;
}

void SetNewPartition(RedisModuleKey* key, const PartitionId& id, Place place) {
  Partition* partition = Register(std::make_unique<Partition>(id, RandomId()), std::move(place));
  redis.ModuleTypeSetValue(key, partition_type, partition);
}

Partition* GetPartition(RedisModuleKey* key) {
  if (redis.ModuleTypeGetType(key) != partition_type) return nullptr;
  auto* const partition = static_cast<Partition*>(redis.ModuleTypeGetValue(key));
  partition->changes().set_most_removals(static_cast<size_t>(limits.max_tombstones));
  return partition;
}

Totals SumTotals() {
  Totals totals;
  std::lock_guard<std::mutex> lock(registry.mutex);
  for (const auto& [partition, place] : registry.partitions) {
    ++totals.partitions;
    totals.tables += partition->shards().size();
    totals.rows += RowsOf(*partition);
    totals.bytes += MemoryOf(*partition);
    totals.clients += partition->clients().all().size();
    totals.held += partition->subscribers().held();
    totals.notified += partition->subscribers().notified();
    totals.subscription_resets += partition->subscribers().resets();
  }
  return totals;
}

std::map<std::pair<std::string, std::string>, TableTotals> SumTables() {
  std::map<std::pair<std::string, std::string>, TableTotals> tables;
  std::lock_guard<std::mutex> lock(registry.mutex);
  for (const auto& [partition, place] : registry.partitions) {
    const size_t end = place.key.rfind(":{");  // het:NAMESPACE:{TAG}
    if (place.key.rfind("het:", 0) != 0 || end == std::string::npos || end < 4) continue;
    const std::string name_space = place.key.substr(4, end - 4);
    for (const auto& [id, shard] : partition->shards()) {
      TableTotals& totals = tables[{name_space, shard->schema().spec().name}];
      totals.rows += shard->rows().size();
      totals.bytes += shard->bytes();
      totals.max_rows = static_cast<uint64_t>(shard->limits().max_rows);
    }
  }
  return tables;
}

std::vector<std::pair<const Partition*, Place>> AllPartitions() {
  std::lock_guard<std::mutex> lock(registry.mutex);
  return {registry.partitions.begin(), registry.partitions.end()};
}

}  // namespace het::module
