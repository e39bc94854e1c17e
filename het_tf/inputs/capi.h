// Graphs for Python (inputs/graph): a C ABI like that of management.h, with the same answers.
#pragma once

#include "het_tf/core/base/c_text.h"

extern "C" {

// The -march= level that this library was built for; "" if none. Python reads it from the file.
HET_EXPORT const char* HetInputsMarch();

// Opens the graph at `path`, which maps and checks it. Text: {"nodes": n, "edges": n, "weighted": false,
// "types": n, "symmetric": true, "self_loops": n, "duplicates": n, "isolated": n, "bytes": n,
// "neighbour_bytes": n, "offsets_at": n, "neighbours_at": n}.
HET_EXPORT int HetGraphInspect(const char* path);

}  // extern "C"
