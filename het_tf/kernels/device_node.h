// Steps whose ids, rows and gradients are in the memory of a device: the way from the library of
// GPU kernels (kernels/gpu/, built for one TensorFlow) into the engine, which is in libhet_tf.so. C
// functions, since that library and this one need not agree on C++. Codes and HetText() as in
// capi/management.h. `stream` is the device's: a cudaStream_t.
//
// A table keeps its cache on the device when its options say so ({"cache": {..., "device":
// "gpu"}}); of other tables ids and gradients are copied to the host, and rows back. Tables of one
// call are of one kind.
#pragma once

#include <cstddef>
#include <cstdint>

#include "het_tf/core/base/c_text.h"

extern "C" {

// What a HetLookup or HetApplyGrad node is about: its attributes (core/engine/call_spec.h).
// InvalidArgument as at the CPU's.
typedef struct HetNode HetNode;
HET_EXPORT int HetNodeCreate(const char* const* tables, size_t count, const char* specs, HetNode** node);
HET_EXPORT void HetNodeDelete(HetNode* node);
// Floats of a row of this feature.
HET_EXPORT int HetNodeDim(const HetNode* node, size_t feature, int64_t* dim);

// As Steps::Lookup: features in order; ids[f] has counts[f] ids, rows[f] room for counts[f] * dim
// floats, both on the device. `training`: *token is for HetDeviceApply. Rows are there when what is
// put on the stream afterwards runs.
HET_EXPORT int HetDeviceLookup(HetNode* node, const int64_t* const* ids, const int64_t* counts,
                               size_t features, float* const* rows, int training, void* stream,
                               int64_t* token);
// As Steps::Apply, and what kernels/gradient_inputs.h says of scale and loss_scale.
// learning_rates: one a table of specs, in host memory. *skipped: a gradient was not finite under a loss
// scale, and nothing was done. When it returns nothing of the stream uses its arguments but what was put
// there before.
HET_EXPORT int HetDeviceApply(HetNode* node, const int64_t* const* ids, const int64_t* counts,
                              size_t features, const float* const* gradients, int64_t token,
                              const float* learning_rates, size_t rates, float scale, float loss_scale,
                              void* stream, int* skipped);

}  // extern "C"
