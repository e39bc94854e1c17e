// Steps whose ids, rows and gradients are in the memory of a device: the way from the library of GPU kernels
// (kernels/gpu/, built for one TensorFlow) into the engine, which is in this library. Codes and HetText() as
// in management.h. `stream` is the device's: a cudaStream_t.
//
// A table keeps its cache on the device when its options say so ({"cache": {..., "device": "gpu"}}); of other
// tables ids and gradients are copied to the host, and rows back. Tables of one call are of one kind.
#ifndef HET_TF_CAPI_DEVICE_H_
#define HET_TF_CAPI_DEVICE_H_

#include "het_tf/capi/management.h"

extern "C" {

// The library that works the device (core/device/abi.h), by path; and the device, a number among
// those that this process sees. Once a process; an equal second call is fine. FailedPrecondition: others are
// in use, or the library is of another version. NotFound: it cannot be loaded.
HET_EXPORT int HetLoadDeviceLibrary(const char* path, int device);
// Text: one JSON object: "library", "device", and of HetDevInfo "executor", "built", "name",
// "compute_capability", "driver_version", "runtime_version", "multiprocessors", "memory_bytes", "free_bytes".
// FailedPrecondition: there is no device, no library, or the driver is too old; the text has the remedy.
HET_EXPORT int HetDescribeDevice();

// The most rows whose cache takes at most `bytes`: of device memory where the cache is on the device, of this
// process's elsewhere. spec: as of HetCreateTable. cache: the JSON object "cache" of its options, without
// "capacity". InvalidArgument: not even the smallest one fits; the text says what that takes.
HET_EXPORT int HetCacheRows(const char* spec, const char* cache, int64_t bytes, int64_t* rows);

// What a HetLookup or HetApplyGrad node is about: its attributes (core/engine/call_spec.h). InvalidArgument
// as at the CPU's.
typedef struct HetNode HetNode;
HET_EXPORT int HetNodeCreate(const char* const* tables, size_t count, const char* specs, HetNode** node);
HET_EXPORT void HetNodeDelete(HetNode* node);
// Floats of a row of this feature.
HET_EXPORT int HetNodeDim(const HetNode* node, size_t feature, int64_t* dim);
// Tables of specs: how many learning rates HetDeviceApply takes.
HET_EXPORT int HetNodeTables(const HetNode* node, size_t* tables);

// As Engine::Lookup: features in order; ids[f] has counts[f] ids, rows[f] room for counts[f] * dim floats,
// both on the device. `training`: *token is for HetDeviceApply. Rows are there when what is put on the stream
// afterwards runs.
HET_EXPORT int HetDeviceLookup(HetNode* node, const int64_t* const* ids, const int64_t* counts,
                               size_t features, float* const* rows, int training, void* stream,
                               int64_t* token);
// As Engine::Apply, and what kernels/gradient_inputs.h says of scale and loss_scale. learning_rates: host
// memory. *skipped: a gradient was not finite under a loss scale, and nothing was done. When it returns
// nothing of the stream uses its arguments but what was put there before.
HET_EXPORT int HetDeviceApply(HetNode* node, const int64_t* const* ids, const int64_t* counts,
                              size_t features, const float* const* gradients, int64_t token,
                              const float* learning_rates, size_t rates, float scale, float loss_scale,
                              void* stream, int* skipped);

}  // extern "C"

#endif  // HET_TF_CAPI_DEVICE_H_
