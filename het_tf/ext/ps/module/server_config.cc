#include "het_tf/ext/ps/module/server_config.h"

#include <sstream>
#include <string>

#include "het_tf/ext/ps/module/command.h"

namespace het::module {
namespace {

constexpr uint64_t kGigabyte = uint64_t{1} << 30;

// Empty if the server does not know the setting.
std::string Setting(RedisModuleCtx* ctx, const char* name) {
  RedisModuleCallReply* reply = redis.Call(ctx, "CONFIG", "cc", "GET", name);
  if (reply == nullptr) return "";
  std::string value;
  if (redis.CallReplyType(reply) == kReplyArray && redis.CallReplyLength(reply) == 2) {
    size_t size = 0;
    const char* text = redis.CallReplyStringPtr(redis.CallReplyArrayElement(reply, 1), &size);
    if (text != nullptr) value.assign(text, size);
  }
  redis.FreeCallReply(reply);
  return value;
}

void OnConfigChange(RedisModuleCtx* ctx, ServerEvent, uint64_t, void*) {
  try {
    CheckEviction(ctx);
  } catch (const std::exception& error) {
    redis.Log(ctx, "warning", "het: the configuration could not be checked: %s", error.what());
  }
}

}  // namespace

bool CheckEviction(RedisModuleCtx* ctx) {
  if ((redis.GetContextFlags(ctx) & kCtxEvicts) == 0) return true;
  const std::string limit = Setting(ctx, "maxmemory");
  const std::string policy = Setting(ctx, "maxmemory-policy");
  redis.Log(ctx, "warning",
            "het: maxmemory is %s and maxmemory-policy %s: the server would evict whole partitions. Remedy: "
            "maxmemory-policy noeviction",
            limit.c_str(), policy.c_str());
  return false;
}

uint64_t MaxBulkBytes(RedisModuleCtx* ctx) {
  uint64_t bytes = 0;
  return ParseNumber(Setting(ctx, "proto-max-bulk-len"), &bytes) ? bytes : kGigabyte / 2;
}

void WarnOfLimits(RedisModuleCtx* ctx) {
  struct Least {
    const char* setting;
    uint64_t bytes;
    const char* consequence;
  };
  static constexpr Least kLeast[] = {
      {"proto-max-bulk-len", kGigabyte,
       "a partition that is larger cannot be migrated. Remedy: "
       "proto-max-bulk-len 4gb, and client-query-buffer-limit 4gb"},
      {"client-query-buffer-limit", kGigabyte,
       "a partition that is larger cannot be migrated. Remedy: "
       "client-query-buffer-limit 4gb"},
      {"repl-backlog-size", kGigabyte / 4,
       "a replica that was briefly disconnected needs a full "
       "resynchronisation. Remedy: repl-backlog-size 1gb"},
  };
  for (const Least& least : kLeast) {
    uint64_t bytes = 0;
    if (!ParseNumber(Setting(ctx, least.setting), &bytes) || bytes >= least.bytes) continue;
    redis.Log(ctx, "warning", "het: %s is %llu: %s", least.setting, static_cast<unsigned long long>(bytes),
              least.consequence);
  }
  if (Setting(ctx, "appendonly") == "yes" && Setting(ctx, "aof-use-rdb-preamble") == "no") {
    redis.Log(ctx, "warning",
              "het: aof-use-rdb-preamble is no: the append-only file is rewritten as commands, which takes "
              "several times as long to write and to load. Remedy: aof-use-rdb-preamble yes");
  }
  uint64_t timeout = 0;
  if (Setting(ctx, "cluster-enabled") == "yes" &&
      ParseNumber(Setting(ctx, "cluster-node-timeout"), &timeout) && timeout < 15000) {
    redis.Log(ctx, "warning",
              "het: cluster-node-timeout is %llu: a node that moves a large partition is blocked for seconds "
              "and would be declared dead. Remedy: cluster-node-timeout 15000",
              static_cast<unsigned long long>(timeout));
  }
  // "normal 0 0 0 slave 268435456 67108864 60 pubsub ..."
  std::istringstream limits(Setting(ctx, "client-output-buffer-limit"));
  std::string kind;
  uint64_t hard = 0;
  uint64_t soft = 0;
  uint64_t seconds = 0;
  while (limits >> kind >> hard >> soft >> seconds) {
    if (kind != "slave" && kind != "replica") continue;
    if ((hard == 0 || hard >= kGigabyte) && (soft == 0 || soft >= kGigabyte)) continue;
    redis.Log(
        ctx, "warning",
        "het: client-output-buffer-limit %s %llu %llu %llu: pushes during a full resynchronisation can "
        "overrun it, and the replica begins again. Remedy: client-output-buffer-limit replica 0 0 0, and "
        "repl-backlog-size 1gb",
        kind.c_str(), static_cast<unsigned long long>(hard), static_cast<unsigned long long>(soft),
        static_cast<unsigned long long>(seconds));
  }
}

void WatchConfig(RedisModuleCtx* ctx) { redis.SubscribeToServerEvent(ctx, kConfigEvent, OnConfigChange); }

}  // namespace het::module
