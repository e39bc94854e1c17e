// Row files of checkpoints (ext/checkpoint/cc), for Python without TensorFlow. Codes and HetText() as in
// management.h.
#pragma once

#include <cstdint>

#include "het_tf/core/base/c_text.h"

extern "C" {

// Reads all of a row file. Request: {"entry": that of the manifest, "store": {"partitions": P, "hash_seed":
// n}, or none: then keys and floats are not looked at}. Text: {"faults": [text], "tables": {name: {"rows",
// "removed", "dim", "slot_floats"}}}. InvalidArgument: it is not the file of this entry.
HET_EXPORT int HetVerifyRows(const char* path, const char* request);
// Where a table lies in a store of `partitions` (core/wire/layout.h). Text: {"id": that of the table,
// "first": its first partition, "group": how many it uses}.
HET_EXPORT int HetTablePlace(const char* table, int64_t partitions);

}  // extern "C"
