// Serving files for Python (ext/serving/cc/serve): a C ABI like that of management.h, with the same answers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "het_tf/capi/management.h"

extern "C" {

// Writes the rows of a table to a new file `path`; unsent updates of caches are not included. Only some rows
// at a time are in memory. `options`: {"rows": "float32" | "float16" | "bfloat16" | "int8", "unknown":
// "initial" | "zeros", "min_count": least number of updates of a row, "last_used": least time of its last
// update, in seconds since 1970}. Text: {"rows": n, "row_bytes": n, "dropped": rows that these two left out}.
HET_EXPORT int HetServeWrite(const char* name_space, const char* table, const char* path,
                             const char* options);

}  // extern "C"
