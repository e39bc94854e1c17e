// The steps of a layer (core/engine/steps.h) on plain memory, for Python without TensorFlow: what HetLookup,
// HetKeepGrad, HetApplyGrad and HetApplyCount do in a graph of TensorFlow. Codes and HetText() as in
// management.h. Ids, rows and gradients are read and written where they are; what has a mask is
// copied.
//
// A call is a spec, parsed once (core/engine/call_spec.h). It holds no table: after HetReset its functions
// answer FailedPrecondition. Thread-safe: any thread may use a call, several at once, until HetCallClose.
// A SIGINT ends a wait for a server as in every function (core/base/interrupt.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "het_tf/core/base/c_text.h"

extern "C" {

// *call must be closed. Text: {"features": N, "tables": T, "tickets": floats of HetCallKeep's tickets}.
HET_EXPORT int HetCallOpen(const char* specs, void** call);
// Reads the rows of all features. ids[f]: counts[f] of feature f. masks: null, or for each feature null or
// counts[f] bools, false: the id is left out, and its row is zeros. rows[f]: room for counts[f] * dim. token:
// not null: the lookup belongs to a training step, which the token stands for in HetCallKeep; null: nothing
// is remembered.
HET_EXPORT int HetCallLookup(void* call, const int64_t* const* ids, const size_t* counts,
                             const bool* const* masks, float* const* rows, uint64_t* token);
// Keeps the gradients of the rows that `token` stands for; changes no row. ids, counts and masks: those of
// the lookup; gradients[f]: counts[f] * dim. worker: this one's rank. tickets: for each different variable of
// the spec, in order of first use, a matrix [64, 2] (core/engine/kept_gradients.h).
HET_EXPORT int HetCallKeep(void* call, const int64_t* const* ids, const size_t* counts,
                           const bool* const* masks, const float* const* gradients, uint64_t token,
                           int64_t worker, float* tickets);
// Updates the rows of one variable, whose spec the call has: the kept gradients that `tickets` [64, 2]
// choose, each times its factor and `scale`. rates: one a table.
HET_EXPORT int HetCallApply(void* call, const float* tickets, const float* rates, float scale);
// The norm, of an order above 0, of the gradient that HetCallApply would apply.
HET_EXPORT int HetCallNorm(void* call, const float* tickets, double order, double* norm);
// How often each table was updated. counts: one a table.
HET_EXPORT int HetCallApplies(void* call, int64_t* counts);
HET_EXPORT void HetCallClose(void* call);

}  // extern "C"
