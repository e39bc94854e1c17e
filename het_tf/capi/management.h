// The tables as objects, for Python: a C ABI that ctypes calls, outside of any graph.
//
// Every function returns a het::Code (0: OK). HetText() then returns, in this thread, the error message, or
// the function's text. Strings are UTF-8. `name_space` is "" for the default namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "het_tf/core/base/c_text.h"
#include "het_tf/ext/ps/capi/server.h"

extern "C" {

// Describes the build as one JSON object, owned by the library.
HET_EXPORT const char* HetBuildInfo();

// Text: the spec in canonical form, with defaults. InvalidArgument names the error.
HET_EXPORT int HetCheckSpec(const char* spec);
// cache: one JSON object (engine/table_options.h). Text: a table's options with it at a parameter server,
// with defaults, but without an effect of "bytes". InvalidArgument names the error.
HET_EXPORT int HetCheckCache(const char* cache);
// cache: as for HetCheckCache.
HET_EXPORT int HetCreateTable(const char* name_space, const char* spec, const char* cache);
HET_EXPORT int HetDropTable(const char* name_space, const char* table);
// The same in this process; rows at a parameter server stay.
HET_EXPORT int HetLeaveTable(const char* name_space, const char* table);
// Text: {"spec": ..., "options": ...}.
HET_EXPORT int HetFindTable(const char* name_space, const char* table);
// Text: a list of names.
HET_EXPORT int HetTableNames(const char* name_space);

HET_EXPORT int HetSize(const char* name_space, const char* table, int64_t* rows);
HET_EXPORT int HetBytes(const char* name_space, const char* table, int64_t* bytes);
HET_EXPORT int HetApplies(const char* name_space, const char* table, int64_t* applies);
// Sets the step of learning-rate schedules, when a checkpoint is restored.
HET_EXPORT int HetSetApplies(const char* name_space, const char* table, int64_t applies);
HET_EXPORT int HetRowFloats(const char* name_space, const char* table, int64_t* floats);
// Ids of strings, by the hash of layers. String i is text[ends[i - 1], ends[i]), the first begins at 0; any
// bytes. ids: count.
HET_EXPORT int HetHashIds(const char* text, const uint64_t* ends, size_t count, int64_t* ids);
// values: count * dim. `stored`: the store's rows, with unique ids; else as a lookup reads them.
HET_EXPORT int HetRead(const char* name_space, const char* table, const int64_t* ids, size_t count,
                       int stored, float* values);
// rows: count * dim, or count * row_floats with slots. clocks: count, or null for rows of age 0.
HET_EXPORT int HetAssign(const char* name_space, const char* table, const int64_t* ids, size_t count,
                         const float* rows, int with_slots, const int64_t* clocks);
HET_EXPORT int HetRemove(const char* name_space, const char* table, const int64_t* ids, size_t count,
                         int64_t* removed);
HET_EXPORT int HetClear(const char* name_space, const char* table);
// Text: a JSON object of counters.
HET_EXPORT int HetStats(const char* name_space, const char* table);
// Text: {namespace: {"tables": {name: as HetStats, without rows and bytes of the store}, "phases": {name:
// {"seconds", "counts"}}}} (core/base/trace_log.h, TraceLog::Total), of all that this process uses. Asks no
// server.
HET_EXPORT int HetReport();

// Reads rows of the store: all if there are at most `count`, else `count` or a few less from random
// positions. ids: count; values: count * dim; *rows: the number read.
HET_EXPORT int HetSample(const char* name_space, const char* table, size_t count, uint64_t seed, int64_t* ids,
                         float* values, int64_t* rows);

// Reads all rows at one moment; *scan must be freed.
HET_EXPORT int HetScan(const char* name_space, const char* table, void** scan, int64_t* count,
                       int64_t* row_floats);
HET_EXPORT int HetScanCopy(const void* scan, int64_t* ids, int64_t* clocks, uint32_t* last_used,
                           uint16_t* counts, float* rows);
HET_EXPORT void HetScanFree(void* scan);

// Unused namespaces will have their tables at this parameter server; "": in this process. `options`: a JSON
// object (ext/ps/client/remote_options.h), or "". `password`: as of HetServerOpen.
HET_EXPORT int HetConnectWith(const char* address, const char* options, HetPassword password);
// Text: the same with defaults. InvalidArgument names the error.
HET_EXPORT int HetCheckOptions(const char* options);
// A checkpoint has all updates that the namespace has applied, so they need not be kept longer.
HET_EXPORT int HetMarkDurable(const char* name_space);
// As HetFlush if the namespace is in use and its tables are at a parameter server; else does nothing.
// `interrupted`: ends as by Ctrl-C if a server stands still.
HET_EXPORT int HetFlushRemote(const char* name_space, int interrupted);
// Passes a SIGINT on that an op's call has held back (core/base/interrupt.h). Returns whether there was one.
HET_EXPORT int HetPassInterruptOn();
HET_EXPORT int HetFlush(const char* name_space);
// All workers have flushed: rows that travelled on demand may be read by anyone.
HET_EXPORT int HetSettle(const char* name_space);
// HetFlush, and empties the caches: reads then equal a scan, to the last bit.
HET_EXPORT int HetRefresh(const char* name_space);

// --- checkpoints: row files (ext/checkpoint/cc/row_file.h). Texts and requests are JSON objects.

// Text: {"partitions": P, "hash_seed": "decimal", "remote": bool, "tables": {name: {"spec", "limits",
// "applies", "rows", "clock_floor", "positions": ["INCARNATION:NUMBER", ... one a partition], "row_floats",
// "slots": [[name, floats], ...]}}}.
HET_EXPORT int HetStoreInfo(const char* name_space);
// Request: {"tables": {name: [position, ... one a partition]}}, of HetStoreInfo. Text: {"tables": {name:
// "changes", "keys" (the removals since then are not known) or "whole"}} (core/store/changes.h).
HET_EXPORT int HetChangesSince(const char* name_space, const char* request);
// Writes the new file `path` and syncs it; concurrent calls are fine. Unsent updates of caches are not
// included: flush first. Request: {"tables": [name], "partitions": [number], "since": null or {"tables":
// {name: [position, ...]}}}; a table in `since` is saved as an increment, or complete if the changes are not
// known. Text: {"bytes", "header_xxh3", "tensors": {"NAME/keys": {"rows", "xxh3"}}, "tables": {name: {"rows",
// "removed", "complete"}}}.
HET_EXPORT int HetSaveRows(const char* name_space, const char* path, const char* request);
// Request: {"loader": "a word", "seconds": n}. Excludes other uses of the tables: in this process every call
// fails, and at a parameter server others wait, for at most `seconds`. Repeating it renews the time.
HET_EXPORT int HetLoadBegin(const char* name_space, const char* request);
// Removes all rows. Call between Begin and Commit.
HET_EXPORT int HetLoadClear(const char* name_space, const char* table);
// Loads the rows and removals of a file into the store; concurrent calls are fine. Request: {"tables": {name
// in the file: {"to": name, "slots": true}}}; without slots each row gets a new row's. Text: {"tables": {name
// in the file: {"rows", "removed"}}}.
HET_EXPORT int HetLoadRows(const char* name_space, const char* path, const char* request);
// Request: {"clock_floors": {name: n}, "applies": {name: n}}. Gives every table a new epoch.
HET_EXPORT int HetLoadCommit(const char* name_space, const char* request);
// Ends a load; tables stay loaded in part.
HET_EXPORT int HetLoadAbort(const char* name_space);

// Drops the namespace and its tables.
HET_EXPORT int HetReset(const char* name_space);
// Sets the threads of all engines, including the caller.
HET_EXPORT int HetSetThreads(size_t threads);
// For tests: limits the core's memory to `bytes`.
HET_EXPORT int HetSetAllocLimit(size_t bytes);
HET_EXPORT int HetAllocatedBytes(int64_t* bytes);

}  // extern "C"
