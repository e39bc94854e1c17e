// Row files of checkpoints (ext/checkpoint/cc), for Python without TensorFlow. Codes and HetText() as in management.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "het_tf/core/base/c_text.h"

extern "C" {

// Writes the new file `path`: each key's newest row from a chain of files. Request:
// {"store": {"partitions": P, "hash_seed": n}, "partitions": [number], "tables": [{"name", "dim",
// "slot_floats", "complete": bool, "files": [path of a row file, oldest first]}]}; a table that is not
// complete keeps the keys that its files remove. Text as for HetSaveRows.
HET_EXPORT int HetMergeRows(const char* path, const char* request);
// Reads all of a row file. Request: {"entry": that of the manifest; "store" as above, or none: then keys and
// floats are not looked at}. Text: {"faults": [text], "tables": {name: {"rows", "removed", "dim",
// "slot_floats"}}}.
// InvalidArgument: it is not the file of this entry.
HET_EXPORT int HetVerifyRows(const char* path, const char* request);
// Where a table lies in a store of `partitions` (core/wire/layout.h). Text: {"id": that of the table,
// "first": its first partition, "group": how many it uses}.
HET_EXPORT int HetTablePlace(const char* table, int64_t partitions);

}  // extern "C"
