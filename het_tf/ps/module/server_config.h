// The server's own settings that a store of partitions depends on.
#pragma once

#include "het_tf/ps/module/redis_api.h"

namespace het::module {

// False, with one line in the log, when the server would evict keys: a partition is a key, and
// evicting one loses every row in it.
bool CheckEviction(RedisModuleCtx* ctx);

// Logs, with the remedy, what works for small stores only.
void WarnOfLimits(RedisModuleCtx* ctx);

// proto-max-bulk-len: the largest partition that can be moved.
uint64_t MaxBulkBytes(RedisModuleCtx* ctx);

// Has CheckEviction look again whenever the configuration changes. It can then only warn.
void WatchConfig(RedisModuleCtx* ctx);

}  // namespace het::module
