// Replays a job of N workers over a sample of its keys (ext/sizing/cc/replay.h), for Python.
#pragma once

#include <cstddef>
#include <cstdint>

#include "het_tf/core/base/c_text.h"

extern "C" {

// keys: the keys of one table, batch after batch; ends: `batches` end offsets. Batch b belongs to worker b %
// workers in step b / workers. Request: {"spec": as for HetCheckSpec, "cache": as for HetCheckCache, with
// "workers"; "partitions", "shards", "warm_steps", "window": numbers; "on_demand", "rows_exist": bool}.
// Text: {"steps", "waiting_reads", "waiting_writes", "client_seconds", "store_seconds", "store_rows",
// "store_bytes", "cached_rows", "unsent_rows", "evictions", "line_bytes" (of a cached row), "partition_bytes"
// (without rows), "pull_most",
// "push_most" (the bounds of an old row): numbers; "counters": {of HetStats, in the counted
// steps}; "traffic": {"pushes", "reads", "replies": {"frames", "parts", "bytes"}, "round_trips"}}.
HET_EXPORT int HetReplay(const char* request, const int64_t* keys, const uint64_t* ends, size_t batches);

}  // extern "C"
