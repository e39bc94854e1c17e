// The follower (ext/serving/cc/follow/follower.h) for Python: libhet_engine.so, which does not need
// TensorFlow. Codes and HetText() as in management.h. One thread at a time calls these functions for one
// follower.
#pragma once

#include "het_tf/core/base/c_text.h"

extern "C" {

// Opens a live directory and a store, and follows it on a thread of its own until HetFollowClose. `options`:
//   {"address": "redis://...", "namespace": "", "directory": "the live directory", "base": [path of a serving
//    file, in the order of the tables], "positions": [text, one a partition] or [], "poll": seconds,
//    "page_bytes": n, "rows": "float32" | "float16" | "int8" | "int4", "timeout": seconds}
// Unavailable: no server answers. FailedPrecondition: another process follows, or the store is not the
// export's.
HET_EXPORT int HetFollowOpen(const char* options, void** follower);
// `version`: {"number": n, "dense": "path relative to the live directory", "cut": [position, one a
// partition], "trained_through": seconds or null}.
HET_EXPORT int HetFollowOffer(void* follower, const char* version);
// Goes back to the dense weights of a version, and forgets those that wait; rows go on. `version`: as of
// HetFollowOffer.
HET_EXPORT int HetFollowRollBack(void* follower, const char* version);
// Text: {"version": n in force, "waiting": [n], "age": seconds or null, "skew": seconds by which rows may
// be newer than the dense weights or null, "caught_up": bool, "rows", "removed", "bytes": since the follower
// began, "flip_error": text, "tables": {name: {"rows", "error"}}, "partitions": [{"partition", "server",
// "position", "age", "kind", "scans", "rows", "removed", "bytes", "error": text, "failing": seconds}]}.
HET_EXPORT int HetFollowStatus(void* follower);
// Reads the live files, whether a process follows or not. `options`: "directory" and "base" of HetFollowOpen.
// Text: {"live": bool: there are such files, "version": n, "dense": its path, "trained_through": seconds or
// null, "age": seconds or null, "skew": likewise, "generation": n, "rows": [n, one a table]}.
HET_EXPORT int HetFollowInspect(const char* options);
// Ends after the page that is being written.
HET_EXPORT void HetFollowClose(void* follower);

}  // extern "C"
