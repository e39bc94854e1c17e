#include "het_tf/ext/ps/module/sweeper.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <string>

#include "het_tf/core/base/cpu_seconds.h"
#include "het_tf/ext/ps/module/command.h"
#include "het_tf/ext/ps/module/server_config.h"
#include "het_tf/ext/ps/module/stats.h"
#include "het_tf/ext/ps/module/value.h"

namespace het::module {
namespace {

using Time = std::chrono::steady_clock;

constexpr long long kPeriodMs = 100;
constexpr auto kStep = std::chrono::milliseconds(1);
// Rows between two readings of the clock: some ten microseconds, a few hundred if many are dropped.
constexpr size_t kRowsAtOnce = 1024;

// A partition of this size should have been several.
constexpr uint64_t kLargeBytes = uint64_t{256} << 20;

// The next step begins here.
const Partition* next_partition = nullptr;

// The last warning about a partition's size.
struct SizeWarning {
  uint64_t bytes = 0;  // at the last check
  int level = 0;       // 1: large, 2: too large
};
std::map<const Partition*, SizeWarning> warnings;

// The open key of a partition.
struct OpenPartition {
  OpenPartition(RedisModuleCtx* ctx, const Place& place, const Partition* expected) : ctx(ctx) {
    if (redis.SelectDb(ctx, place.db) != kOk) return;
    name = redis.CreateString(ctx, place.key.data(), place.key.size());
    key = std::make_unique<Key>(ctx, name, kRead | kWrite);
    Partition* here = key->empty() ? nullptr : GetPartition(key->get());
    if (here == expected) partition = here;
  }
  ~OpenPartition() {
    key.reset();
    if (name != nullptr) redis.FreeString(ctx, name);
  }
  OpenPartition(const OpenPartition&) = delete;
  OpenPartition& operator=(const OpenPartition&) = delete;

  RedisModuleCtx* ctx;
  RedisModuleString* name = nullptr;
  std::unique_ptr<Key> key;
  Partition* partition = nullptr;  // null: it has been moved or is being freed
};

void WarnOfSize(RedisModuleCtx* ctx, const Place& place, const Partition& partition) {
  const uint64_t bytes = partition.bytes();
  SizeWarning* const before = &warnings[&partition];
  // Read the settings only if the size has changed. They are at least a megabyte.
  if (bytes == before->bytes || bytes < (uint64_t{512} << 10)) return;
  before->bytes = bytes;
  const uint64_t bulk = MaxBulkBytes(ctx);
  const int is = bytes > bulk ? 2 : bytes > std::min(kLargeBytes, bulk / 2) ? 1 : 0;
  if (is <= before->level) return;
  before->level = is;
  redis.Log(ctx, "warning", "het: %s holds %llu MB%s. Remedy: %sfewer rows (ttl, max_rows, min_count)",
            place.key.c_str(), static_cast<unsigned long long>(bytes / 1000000),
            is == 2 ? ", more than proto-max-bulk-len: it cannot be moved to another shard"
                    : ": moving it to another shard blocks both for seconds",
            is == 2 ? "raise proto-max-bulk-len and client-query-buffer-limit, or " : "");
}

// Returns the number of rows removed.
uint64_t SweepPartition(RedisModuleCtx* ctx, const Place& place, const Partition* expected) {
  OpenPartition open(ctx, place, expected);
  if (open.partition == nullptr) return 0;
  const uint32_t now = UnixTime();
  std::vector<Bytes> removals;
  const Swept swept = open.partition->Sweep(now, kRowsAtOnce, &removals);
  stats.swept += swept;
  ReplicateRemovals(ctx, open.name, removals);
  const LoadMark* mark = open.partition->loading();
  if (mark != nullptr && !mark->holds(now)) {
    const std::string loader = mark->loader;
    redis.Log(
        ctx, "warning",
        "het: %s did not end its load of %s in time; its tables may be loaded in part. Remedy: load again",
        loader.c_str(), place.key.c_str());
    open.partition->SetLoadMark(LoadMark());
    redis.Replicate(ctx, "HET.TABLE", "scc", open.name, "ABORT", loader.c_str());
  }
  if (open.partition->swept_all()) WarnOfSize(ctx, place, *open.partition);
  return swept.rows();
}

void Step(RedisModuleCtx* ctx) {
  const int flags = redis.GetContextFlags(ctx);
  if ((flags & kCtxPrimary) == 0 || (flags & kCtxLoading) != 0 || redis.AvoidReplicaTraffic() != 0) return;
  const auto partitions = AllPartitions();
  if (partitions.empty()) return;
  if (warnings.size() > partitions.size()) warnings.clear();  // some partitions no longer exist
  ++stats.sweeps;
  auto first = std::find_if(partitions.begin(), partitions.end(),
                            [](const auto& entry) { return entry.first == next_partition; });
  if (first == partitions.end()) first = partitions.begin();
  const auto end = Time::now() + kStep;
  auto at = first;
  // Once around, then again while there are rows to remove and time.
  uint64_t removed = 0;
  do {
    if (at == first) removed = 0;
    removed += SweepPartition(ctx, at->second, at->first);
    if (++at == partitions.end()) at = partitions.begin();
  } while ((at != first || removed > 0) && Time::now() < end);
  next_partition = at->first;
}

void OnTimer(RedisModuleCtx* ctx, void*) {
  const double began = CpuSeconds::Now();
  try {
    Step(ctx);
  } catch (const std::exception& error) {
    redis.Log(ctx, "warning", "het: a sweep ended early: %s", error.what());
  }
  const auto took = static_cast<uint64_t>((CpuSeconds::Now() - began) * 1e6);
  stats.sweep_longest_us = std::max(stats.sweep_longest_us, took);
  redis.CreateTimer(ctx, kPeriodMs, OnTimer, nullptr);
}

}  // namespace

void StartSweeper(RedisModuleCtx* ctx) { redis.CreateTimer(ctx, kPeriodMs, OnTimer, nullptr); }

void ReplicateRemovals(RedisModuleCtx* ctx, const RedisModuleString* key,
                       const std::vector<Bytes>& removals) {
  for (const Bytes& chunk : removals) {
    redis.Replicate(ctx, "HET.LOAD", "sb", key, reinterpret_cast<const char*>(chunk.data()), chunk.size());
  }
}

}  // namespace het::module
