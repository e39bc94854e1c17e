// Limits on a server's use by the module's users: settings of redis.conf and CONFIG SET.
//
//   het.max-reply-bytes   size of the answer to one frame of HET.STEP or HET.READ
//   het.max-tables        tables in one partition
//   het.max-tombstones    removed keys that a partition remembers (core/store/change_log.h)
#pragma once

#include <cstddef>

#include "het_tf/ext/ps/module/redis_api.h"

namespace het::module {

struct Limits {
  long long max_reply_bytes;
  long long max_tables;
  long long max_tombstones;
};
extern Limits limits;

// Reads them. Returns false if the server refuses, after it has logged why.
bool LoadLimits(RedisModuleCtx* ctx);

}  // namespace het::module
