// Steps with rows and gradients in device memory, and ids in host memory: connects the library of GPU kernels
// (kernels/gpu/, built for one TensorFlow release) to the engine in libhet_tf.so. C functions, since the two
// libraries need not agree on C++. Codes and HetText() as in capi/management.h. `stream` is the device's: a
// cudaStream_t.
//
// All tables of a call must have their caches on the device ({"cache": {..., "device": "gpu"}}): layers place
// their ops beside their caches.
#pragma once

#include <cstddef>
#include <cstdint>

#include "het_tf/core/base/c_text.h"

extern "C" {

// The attributes of a HetLookup, HetKeepGrad or HetApplyGrad node (core/engine/call_spec.h). Errors as on the
// CPU.
typedef struct HetNode HetNode;
HET_EXPORT int HetNodeCreate(const char* const* tables, size_t count, const char* specs, HetNode** node);
HET_EXPORT void HetNodeDelete(HetNode* node);
// The floats in a row of this feature.
HET_EXPORT int64_t HetNodeDim(const HetNode* node, size_t feature);
// The rows of the tickets of a node's gradients.
HET_EXPORT size_t HetNodeTicketRows(const HetNode* node);

// As Steps::Lookup: of each feature in order, ids[f] has counts[f] ids, rows[f] room for counts[f] * dim
// floats, on the device. With `training`, *token is for HetDeviceKeep. Later work on the stream sees the
// rows.
HET_EXPORT int HetDeviceLookup(HetNode* node, const int64_t* const* ids, const size_t* counts,
                               float* const* rows, int training, void* stream, int64_t* token);
// As Steps::Keep: ids, and gradients on the device, are used until release(memory), which is called once,
// also after an error. tickets: [HetNodeTicketRows, 2], in host memory.
HET_EXPORT int HetDeviceKeep(HetNode* node, const int64_t* const* ids, const size_t* counts,
                             const float* const* gradients, int64_t token, float norm, uint32_t worker,
                             void* memory, void (*release)(void*), void* stream, float* tickets);
// As Steps::ApplyKept; all in host memory. learning_rates: one for each table of specs.
HET_EXPORT int HetDeviceApply(HetNode* node, const float* tickets, size_t floats, const float* learning_rates,
                              size_t rates, float scale);

}  // extern "C"
