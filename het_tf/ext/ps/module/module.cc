// The `het` module's entry from the server. See value.h for the data type, command.h for the commands,
// core/store/partition.h for partitions.
//
//   HET.TABLE key CREATE index count hash_seed            an empty partition
//   HET.TABLE key ADD spec-json [epoch]
//   HET.TABLE key DROP name | CLEAR name [epoch]
//   HET.TABLE key BEGIN loader [seconds]                  marks a load of several partitions;
//   HET.TABLE key COMMIT loader | ABORT loader            ends it
//   HET.STEP key frame                                    push, check and fetch
//   HET.READ key frame                                    check and fetch
//   HET.SCAN key cursor [COUNT rows]                      rows, chunk by chunk
//   HET.LOAD key chunk [chunk ...]
//   HET.CHANGES key SINCE position [...]                 changed rows and removed keys (command_changes.cc)
//   HET.STAT key [TABLES [cursor [COUNT tables]]]
#include <cctype>
#include <exception>
#include <string>

#include "het_tf/core/base/alloc.h"
#include "het_tf/ext/ps/module/command.h"
#include "het_tf/ext/ps/module/limits.h"
#include "het_tf/ext/ps/module/server_config.h"
#include "het_tf/ext/ps/module/stats.h"
#include "het_tf/ext/ps/module/sweeper.h"
#include "het_tf/ext/ps/module/value.h"

namespace het::module {
namespace {

constexpr char kName[] = "het";
constexpr int kModuleVersion = 1;

struct Command {
  const char* name;
  CommandFn run;
  const char* flags;
};

constexpr Command kCommands[] = {
    {"het.table", Entry<RunTable>, "write"},        {"het.step", Entry<RunStep>, "write deny-oom"},
    {"het.read", Entry<RunRead>, "readonly"},       {"het.scan", Entry<RunScan>, "readonly"},
    {"het.load", Entry<RunLoad>, "write"},          {"het.stat", Entry<RunStat>, "readonly"},
    {"het.changes", Entry<RunChanges>, "readonly"},
};

// INFO replaces some characters, so all but these are %XX.
std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.') {
      out += c;
    } else {
      static constexpr char kDigits[] = "0123456789ABCDEF";
      out += {'%', kDigits[static_cast<uint8_t>(c) >> 4], kDigits[static_cast<uint8_t>(c) & 15]};
    }
  }
  return out;
}

// A line for each table: het_table_N:namespace=...,name=...,rows=...,bytes=...,max_rows=...
void TablesInfo(RedisModuleInfoCtx* info) {
  if (redis.InfoAddSection(info, "tables") != kOk) return;  // it is not asked for
  size_t number = 0;
  for (const auto& [name, totals] : SumTables()) {
    const std::string line = "namespace=" + Escaped(name.first) + ",name=" + Escaped(name.second) +
                             ",rows=" + std::to_string(totals.rows) +
                             ",bytes=" + std::to_string(totals.bytes) +
                             ",max_rows=" + std::to_string(totals.max_rows);
    redis.InfoAddFieldCString(info, ("table_" + std::to_string(number++)).c_str(), line.c_str());
  }
}

void Info(RedisModuleInfoCtx* info, int for_crash_report) {
  if (for_crash_report != 0) return;  // the crashed thread may hold the mutex of the totals
  TablesInfo(info);
  redis.InfoAddSection(info, "");
  auto add = [info](const char* name, uint64_t value) { redis.InfoAddFieldULongLong(info, name, value); };
  const Totals totals = SumTotals();
  add("partitions", totals.partitions);
  add("tables", totals.tables);
  add("rows", totals.rows);
  add("bytes", totals.bytes);
  add("clients", totals.clients);
  add("subscribed_rows", totals.held);
  add("notified_rows", totals.notified);
  add("subscription_resets", totals.subscription_resets);
  add("frames", stats.frames);
  add("pushes_applied", stats.pushes_applied);
  add("pulls", stats.pulls);
  add("rows_pulled", stats.rows_pulled);
  add("bytes_in", stats.bytes_in);
  add("bytes_out", stats.bytes_out);
  add("changes_pages", stats.changes_pages);
  add("changes_bytes", stats.changes_bytes);
  add("busy_us", static_cast<uint64_t>(stats.busy_seconds * 1e6));
  add("swept_ttl", stats.swept.ttl);
  add("swept_min_count", stats.swept.min_count);
  add("swept_max_rows", stats.swept.max_rows);
  add("rows_removed", stats.rows_removed);
  add("clients_forgotten", stats.swept.clients);
  add("sweeps", stats.sweeps);
  add("sweep_longest_us", stats.sweep_longest_us);
  auto refused = [&](const char* name, FrameStatus status) {
    add(name, stats.by_status[static_cast<size_t>(status)]);
  };
  refused("refused_gap", FrameStatus::kGap);
  refused("refused_epoch", FrameStatus::kEpoch);
  refused("refused_no_table", FrameStatus::kNoTable);
  refused("refused_wrong_partition", FrameStatus::kWrongPartition);
  refused("refused_bad_frame", FrameStatus::kBadFrame);
  refused("refused_out_of_memory", FrameStatus::kOutOfMemory);
  refused("refused_elsewhere", FrameStatus::kElsewhere);
  add("refused_loading", stats.refused_loading);
}

bool Load(RedisModuleCtx* ctx, int argc) {
  if (!LoadRedisApi(ctx)) return false;
  auto refuse = [ctx](const char* why) {
    redis.Log(ctx, "warning", "het: %s", why);
    return false;
  };
  if (redis.IsModuleNameBusy(kName) != 0) return refuse("the module is loaded already");
  redis.SetModuleAttribs(ctx, kName, kModuleVersion, kApiVersion);
  if (argc != 0) return refuse("the module takes no arguments. Remedy: write only loadmodule PATH");
  // maxmemory must count the memory of tables.
  SetAllocHooks({redis.TryAlloc != nullptr ? redis.TryAlloc : redis.Alloc, redis.Free});
  redis.SetModuleOptions(ctx, kHandleIoErrors);
  if (!LoadLimits(ctx)) return refuse("its settings het.* were refused. Remedy: see the line before");
  if (!CheckEviction(ctx)) return false;
  WarnOfLimits(ctx);
  if (!RegisterType(ctx)) return refuse("another module has the data type of het. Remedy: unload it");
  for (const Command& command : kCommands) {
    if (redis.CreateCommand(ctx, command.name, command.run, command.flags, 1, 1, 1) == kOk) continue;
    return refuse("another module has commands named HET.*. Remedy: unload it");
  }
  redis.RegisterInfoFunc(ctx, Info);
  WatchConfig(ctx);
  StartSweeper(ctx);
  return true;
}

}  // namespace
}  // namespace het::module

// The file exports only these two names (module.map).
extern "C" {

__attribute__((visibility("default"))) int RedisModule_OnLoad(RedisModuleCtx* ctx, RedisModuleString**,
                                                              int argc) {
  using namespace het::module;  // NOLINT: C entry point
  try {
    return Load(ctx, argc) ? kOk : kErr;
  } catch (const std::exception&) {
    return kErr;
  }
}

// The server never unloads a module that has a data type.
__attribute__((visibility("default"))) int RedisModule_OnUnload(RedisModuleCtx*) { return het::module::kErr; }

}  // extern "C"
