// Enforces the limits of tables without pushes (a push sweeps its tables itself), forgets clients, ends
// expired load marks, and warns of partitions that are too large to move.
//
// A timer runs several times a second, each time at most about a millisecond on the server's only thread.
// Only primaries sweep, and never while a failover is prepared. Removals are replicated as HET.LOAD.
#pragma once

#include <vector>

#include "het_tf/core/base/bytes.h"
#include "het_tf/ext/ps/module/redis_api.h"

namespace het::module {

void StartSweeper(RedisModuleCtx* ctx);

// Replicates rows swept out of `key` to replicas and the append-only file.
void ReplicateRemovals(RedisModuleCtx* ctx, const RedisModuleString* key, const std::vector<Bytes>& removals);

}  // namespace het::module
