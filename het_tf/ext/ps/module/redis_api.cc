#include "het_tf/ext/ps/module/redis_api.h"

#include <cstdio>

namespace het::module {

RedisApi redis;

bool LoadRedisApi(RedisModuleCtx* ctx) {
  using FindFn = int (*)(const char* name, void* function);
  const FindFn find = *reinterpret_cast<FindFn*>(ctx);
  find("RedisModule_Log", &redis.Log);
  find("RedisModule_TryAlloc", &redis.TryAlloc);
  const char* missing = nullptr;
#define HET_FIND(result, name, arguments) \
  if (find("RedisModule_" #name, &redis.name) != kOk || redis.name == nullptr) missing = #name;
  HET_REDIS_API(HET_FIND)
#undef HET_FIND
  if (missing == nullptr && redis.Log != nullptr) return true;
  constexpr char kText[] =
      "het: this server has no RedisModule_%s. The module is not loaded. Remedy: Redis 7.0 or Valkey 7.2, or "
      "a newer one";
  if (redis.Log != nullptr) {
    redis.Log(ctx, "warning", kText, missing);
  } else {
    std::fprintf(stderr, kText, "Log");
    std::fputc('\n', stderr);
  }
  return false;
}

}  // namespace het::module
