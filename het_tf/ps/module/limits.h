// What the module's users may take of a server: settings of redis.conf and CONFIG SET.
//
//   het.max-reply-bytes   the answer to one frame of HET.STEP or HET.READ
//   het.max-tables        tables of one partition
#pragma once

#include <cstddef>

#include "het_tf/ps/module/redis_api.h"

namespace het::module {

struct Limits {
  long long max_reply_bytes;
  long long max_tables;
};
extern Limits limits;

// Reads them. False when the server refuses, which has then said why.
bool LoadLimits(RedisModuleCtx* ctx);

}  // namespace het::module
