// Planned lookups for Python without TensorFlow: what HetPlan does in a pipeline of tf.data. Codes and
// HetText() as in management.h; `call` is of capi/steps.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "het_tf/core/base/c_text.h"

extern "C" {

// Announces a training lookup of these ids, and sorts them on this thread; never waits for a server. ids and
// counts: as the lookup will have them. window: batches of the layer that may be planned, at least 1. If
// tables are gone nothing happens: the lookup reports it.
HET_EXPORT int HetCallPlan(void* call, const int64_t* const* ids, const size_t* counts, size_t window);

}  // extern "C"
