// Keeps the limits of tables that nobody pushes to (a push sweeps its tables itself), forgets
// clients, ends marks of loads whose time is over, and warns of partitions that have become too
// large to move.
//
// A timer does a little several times a second: at most about a millisecond on the server's only
// thread. Primaries alone sweep, and never while a failover is prepared; what they remove goes to
// the copies as HET.LOAD.
#pragma once

#include <vector>

#include "het_tf/core/base/bytes.h"
#include "het_tf/ps/module/redis_api.h"

namespace het::module {

void StartSweeper(RedisModuleCtx* ctx);

// What was swept out of `key`, for replicas and the append-only file.
void ReplicateRemovals(RedisModuleCtx* ctx, const RedisModuleString* key, const std::vector<Bytes>& removals);

}  // namespace het::module
