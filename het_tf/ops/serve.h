// Serving files for Python (core/serve): a C ABI like the one of management.h, with the same answers.
#ifndef HET_TF_OPS_SERVE_H_
#define HET_TF_OPS_SERVE_H_

#include <cstddef>
#include <cstdint>

#include "het_tf/ops/management.h"

extern "C" {

// Begins a file at `path`, where there must be nothing. `options`: {"rows": "float32" | "float16" |
// "bfloat16" | "int8", "unknown": "initial" | "zeros"}. *writer is to be freed.
HET_EXPORT int HetServeCreate(const char* path, const char* spec, const char* options, void** writer);
// count rows: the value of ids[i] is the first dim floats of rows + i * stride.
HET_EXPORT int HetServeAdd(void* writer, const int64_t* ids, size_t count, const float* rows, size_t stride);
// The file is complete and on the disk. Text: what HetServeInspect says of it.
HET_EXPORT int HetServeFinish(void* writer);
// A writer that has not finished takes its file with it.
HET_EXPORT void HetServeFree(void* writer);

// Text: {"spec": ..., "rows": n, "row_type": "float32", "row_bytes": n, "unknown": "initial", "bytes": n}.
// With `verify` all of the file is read and its checksums are compared.
HET_EXPORT int HetServeInspect(const char* path, int verify);
// Files that are mapped in this process.
HET_EXPORT int HetServeOpenFiles(int64_t* files);

// Opens what a graph with these specs (kernels/call_spec.h) would read: an error now rather than when it
// serves.
HET_EXPORT int HetOnlineCheck(const char* specs);
// Text: a list of what this process reads online, with counters.
HET_EXPORT int HetOnlineStats();

}  // extern "C"

#endif  // HET_TF_OPS_SERVE_H_
