// The server's settings that a store of partitions depends on.
#pragma once

#include "het_tf/ext/ps/module/redis_api.h"

namespace het::module {

// Returns false, after one line in the log, if the server may evict keys: a partition is a key, and eviction
// loses all its rows.
bool CheckEviction(RedisModuleCtx* ctx);

// Logs, with remedies, settings that suffice only for small stores.
void WarnOfLimits(RedisModuleCtx* ctx);

// proto-max-bulk-len: the size of the largest partition that can be moved.
uint64_t MaxBulkBytes(RedisModuleCtx* ctx);

// Repeats CheckEviction whenever the configuration changes, then only to warn.
void WatchConfig(RedisModuleCtx* ctx);

}  // namespace het::module
