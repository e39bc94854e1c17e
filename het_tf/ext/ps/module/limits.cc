#include "het_tf/ext/ps/module/limits.h"

#include "het_tf/core/store/change_log.h"

namespace het::module {

Limits limits;

namespace {

struct Limit {
  const char* name;
  long long Limits::*value;
  long long normal;
  unsigned flags;
  long long least;
  long long most;
};

constexpr Limit kLimits[] = {
    // Clients ask for kMostReadBytes at once, and get rows that have moved in addition.
    {"max-reply-bytes", &Limits::max_reply_bytes, 64LL << 20, kConfigMemory, 32LL << 20, 512LL << 20},
    {"max-tables", &Limits::max_tables, 4096, kConfigDefault, 1, 1LL << 20},
    {"max-tombstones", &Limits::max_tombstones, ChangeLog::kMostRemovals, kConfigDefault, 0, 1LL << 30},
};

long long Get(const char*, void* limit) { return limits.*static_cast<const Limit*>(limit)->value; }

int Set(const char*, long long value, void* limit, RedisModuleString**) {
  limits.*static_cast<const Limit*>(limit)->value = value;
  return kOk;
}

}  // namespace

bool LoadLimits(RedisModuleCtx* ctx) {
  for (const Limit& limit : kLimits) {
    limits.*limit.value = limit.normal;
    void* const data = const_cast<Limit*>(&limit);  // NOLINT: the server only passes it back
    if (redis.RegisterNumericConfig(ctx, limit.name, limit.normal, limit.flags, limit.least, limit.most, Get,
                                    Set, nullptr, data) != kOk)
      return false;
  }
  return redis.LoadConfigs(ctx) == kOk;
}

}  // namespace het::module
