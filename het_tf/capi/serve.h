// Serving files for Python (core/serve): a C ABI like the one of management.h, with the same answers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "het_tf/capi/management.h"

extern "C" {

// Writes the rows of a table to a file at `path`, where there must be nothing; what caches have not sent is
// not in it. Some rows at a time pass through memory. `options`: {"rows": "float32" | "float16" | "bfloat16"
// | "int8", "unknown": "initial" | "zeros", "min_count": updates that a row must have, "last_used": seconds
// since 1970 before which a row must not have been updated last}. Text: as of HetServeInspect, and "dropped":
// rows that the last two left out.
HET_EXPORT int HetServeWrite(const char* name_space, const char* table, const char* path,
                             const char* options);

// Text: {"spec": ..., "rows": n, "row_type": "float32", "row_bytes": n, "unknown": "initial", "bytes": n}.
// With `verify` all of the file is read and its checksums are compared.
HET_EXPORT int HetServeInspect(const char* path, int verify);

// Opens what a graph with these specs (core/engine/call_spec.h) would read: an error now rather than when it
// serves.
HET_EXPORT int HetOnlineCheck(const char* specs);
// Text: a list of what this process reads online, with counters.
HET_EXPORT int HetOnlineStats();

}  // extern "C"
