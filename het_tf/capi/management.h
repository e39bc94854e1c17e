// The tables as objects, for Python: a C ABI that ctypes calls, outside of any graph.
//
// Every function answers a het::Code (0: OK). HetText() then holds, for this thread, the error message, or
// the text that the function was asked for. Strings are UTF-8. `name_space` is "" for the default namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "het_tf/core/base/c_text.h"

extern "C" {

// How the library was built: one JSON object. Owned by the library.
HET_EXPORT const char* HetBuildInfo();

// Text: the spec in canonical form, defaults filled in. InvalidArgument names what is wrong.
HET_EXPORT int HetCheckSpec(const char* spec);
// cache: one JSON object (engine/table_options.h). Text: the options of a table with it at a parameter
// server, defaults filled in; of "bytes" that says nothing. InvalidArgument names what is wrong.
HET_EXPORT int HetCheckCache(const char* cache);
// cache: as of HetCheckCache.
HET_EXPORT int HetCreateTable(const char* name_space, const char* spec, const char* cache);
HET_EXPORT int HetDropTable(const char* name_space, const char* table);
// The same in this process, while rows at a parameter server stay.
HET_EXPORT int HetLeaveTable(const char* name_space, const char* table);
// Text: {"spec": ..., "options": ...}.
HET_EXPORT int HetFindTable(const char* name_space, const char* table);
// Text: a list of names.
HET_EXPORT int HetTableNames(const char* name_space);

HET_EXPORT int HetSize(const char* name_space, const char* table, int64_t* rows);
HET_EXPORT int HetBytes(const char* name_space, const char* table, int64_t* bytes);
HET_EXPORT int HetApplies(const char* name_space, const char* table, int64_t* applies);
// The step of learning-rate schedules: a worker that joins a job goes on where the others are.
HET_EXPORT int HetSetApplies(const char* name_space, const char* table, int64_t applies);
// The number of workers that train the table, at least 1. Bounds that follow it change, and caches are
// flushed.
HET_EXPORT int HetSetWorkers(const char* name_space, const char* table, int64_t workers);
HET_EXPORT int HetRowFloats(const char* name_space, const char* table, int64_t* floats);
// values: count * dim. `stored`: as the store has them, and no id twice; else as a lookup reads them.
HET_EXPORT int HetRead(const char* name_space, const char* table, const int64_t* ids, size_t count,
                       int stored, float* values);
// rows: count * dim, or count * row_floats with slots.
HET_EXPORT int HetAssign(const char* name_space, const char* table, const int64_t* ids, size_t count,
                         const float* rows, int with_slots);
HET_EXPORT int HetRemove(const char* name_space, const char* table, const int64_t* ids, size_t count,
                         int64_t* removed);
HET_EXPORT int HetClear(const char* name_space, const char* table);
// Text: a JSON object of counters.
HET_EXPORT int HetStats(const char* name_space, const char* table);

// What calls of steps spend their time on (core/base/trace_log.h), between the two. Text of the second:
// {"left_out": n, "entries": [[kind, thread, begin, end], ...]}, nanoseconds since 1970.
HET_EXPORT int HetTraceBegin(const char* name_space);
HET_EXPORT int HetTraceEnd(const char* name_space);

// Rows of the store: all of them where there are at most `count`, else so many, or a few less, from random
// places. ids: count; values: count * dim; *rows: how many there are.
HET_EXPORT int HetSample(const char* name_space, const char* table, size_t count, uint64_t seed, int64_t* ids,
                         float* values, int64_t* rows);

// All rows at one moment; *scan is to be freed.
HET_EXPORT int HetScan(const char* name_space, const char* table, void** scan, int64_t* count,
                       int64_t* row_floats);
HET_EXPORT int HetScanCopy(const void* scan, int64_t* ids, int64_t* clocks, uint32_t* last_used,
                           uint16_t* counts, float* rows);
HET_EXPORT void HetScanFree(void* scan);

// Engines of namespaces that are not in use yet have their tables at this parameter server; "": in this
// process. `options`: a JSON object (ps/client/remote_options.h), or "".
HET_EXPORT int HetConnectWith(const char* address, const char* options);
// Text: the same with defaults filled in. InvalidArgument names what is wrong.
HET_EXPORT int HetCheckOptions(const char* options);
// What the namespace has applied so far is in a checkpoint, and need not be kept any longer.
HET_EXPORT int HetMarkDurable(const char* name_space);
// As HetFlush where the namespace is in use and its tables are at a parameter server; else nothing.
HET_EXPORT int HetFlushRemote(const char* name_space);
HET_EXPORT int HetFlush(const char* name_space);
// HetFlush, and empties the caches: reads give what a scan gives, to the last bit.
HET_EXPORT int HetRefresh(const char* name_space);

// --- checkpoints: row files (core/checkpoint/row_file.h). Texts and requests are JSON objects.

// Text: {"partitions": P, "hash_seed": "decimal", "remote": bool, "tables": {name: {"spec", "limits",
// "applies", "rows", "clock_floor", "epochs": ["decimal", ... one a partition], "row_floats",
// "slots": [[name, floats], ...]}}}.
HET_EXPORT int HetStoreInfo(const char* name_space);
// Writes the new file `path` and syncs it; several calls at once are fine. What caches have not sent is not
// in it: flush first. Request: {"tables": [name], "partitions": [number], "since": null or {"tables": {name:
// [path of a row file, oldest first]}}}; a table that `since` names is saved as an increment. Text: {"bytes",
// "header_xxh3", "tensors": {"NAME/keys": {"rows", "xxh3"}}, "tables": {name: {"rows", "removed"}}}.
HET_EXPORT int HetSaveRows(const char* name_space, const char* path, const char* request);
// Writes the new file `path`: of each key the newest row of a chain of files. No namespace takes part.
// Request: {"store": {"partitions": P, "hash_seed": n}, "partitions": [number], "tables": [{"name", "dim",
// "slot_floats", "complete": bool, "files": [path of a row file, oldest first]}]}; a table that is not
// complete keeps the keys that its files remove. Text as of HetSaveRows.
HET_EXPORT int HetMergeRows(const char* path, const char* request);
// Request: {"loader": "a word", "seconds": n}. From now on nobody else uses the tables: in this process every
// call is refused, and at a parameter server others wait, for at most so many seconds. Again: renewed.
HET_EXPORT int HetLoadBegin(const char* name_space, const char* request);
// All rows go. Between Begin and Commit.
HET_EXPORT int HetLoadClear(const char* name_space, const char* table);
// Rows and removals of a file into the store; several calls at once are fine. Request: {"tables": {name in
// the file: {"to": name, "slots": true}}}; without slots each row gets a new row's. Text: {"tables": {name in
// the file: {"rows", "removed"}}}.
HET_EXPORT int HetLoadRows(const char* name_space, const char* path, const char* request);
// Request: {"clock_floors": {name: n}, "applies": {name: n}}. Every table has a new epoch.
HET_EXPORT int HetLoadCommit(const char* name_space, const char* request);
// Ends a load that has begun; tables stay loaded in part.
HET_EXPORT int HetLoadAbort(const char* name_space);

// Forgets the namespace and its tables.
HET_EXPORT int HetReset(const char* name_space);
// Of all engines, the caller included.
HET_EXPORT int HetSetThreads(size_t threads);
// For tests: the core's memory ends at `bytes`.
HET_EXPORT int HetSetAllocLimit(size_t bytes);
HET_EXPORT int HetAllocatedBytes(int64_t* bytes);

}  // extern "C"
