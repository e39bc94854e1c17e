#include "het_tf/ps/module/server_config.h"

#include <sstream>
#include <string>

#include "het_tf/ps/module/command.h"

namespace het::module {
namespace {

constexpr uint64_t kGigabyte = uint64_t{1} << 30;

// Empty when the server does not know the setting.
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

void WarnOfLimits(RedisModuleCtx* ctx) {
  uint64_t bulk = 0;
  if (ParseNumber(Setting(ctx, "proto-max-bulk-len"), &bulk) && bulk < kGigabyte) {
    redis.Log(ctx, "warning",
              "het: proto-max-bulk-len is %llu: a partition that is larger cannot be migrated. Remedy: "
              "proto-max-bulk-len 4gb, and client-query-buffer-limit 4gb",
              static_cast<unsigned long long>(bulk));
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
