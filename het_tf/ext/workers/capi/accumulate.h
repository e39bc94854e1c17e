// Accumulate (ext/workers/cc/accumulate.h) for Python, on plain memory.
#pragma once

#include "het_tf/capi/management.h"

extern "C" {

// As HetCallApply of capi/steps.h, with the sums of all workers' gradients; each row is updated by one
// worker. All workers must call it for the same variable, also with a gradient of zeros. An error of one is
// the error of all, and no row has changed.
HET_EXPORT int HetCallAccumulate(void* call, const char* label, const float* tickets, const float* rates,
                                 float scale);

}  // extern "C"
