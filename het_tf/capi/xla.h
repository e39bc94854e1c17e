// The steps of a layer (steps.h) as foreign functions of XLA, for programs of JAX on CPUs: XLA calls them
// with the addresses of its arrays, without Python. `jax.ffi.register_ffi_target` takes them.
//
// A call is named by its specs, not by an address, which would be another process's. A call is opened when
// its specs are first seen; at most 1024 stay open.
//
//   attribute    specs: the text that HetCallOpen takes
//   HetXlaLookup ids..., [masks...] -> rows..., [step]    step: of a training lookup, the halves of its token
//   HetXlaKeep   step, gradients..., ids..., [masks...] -> tickets        attribute worker: int64, the rank
//   HetXlaApply  tickets, rates -> nothing                of one variable; rates: F32 [tables]; scale 1
//
// ids: S32 or S64 of any shape; masks, for all features or for none: PRED of the ids' shapes; rows and
// gradients: F32, the shape of the ids and the dim; step: U32 [2], the high half first; tickets: F32
// [64 * variables, 2]. XLA's tokens may stand among them. InvalidArgument: other buffers.
//
// XLA owns the buffers, and keeps them until a function returns. It calls from threads of its own, several at
// once; order is that of JAX's tokens. A function may wait for a server or another worker, and holds XLA's
// thread meanwhile; it waits for no other program of XLA. Errors become JaxRuntimeErrors with HetText().
#pragma once

#include "het_tf/capi/xla_abi.h"
#include "het_tf/core/base/c_text.h"

extern "C" {

HET_EXPORT het::xla::Error* HetXlaLookup(het::xla::Frame* frame);
HET_EXPORT het::xla::Error* HetXlaKeep(het::xla::Frame* frame);
HET_EXPORT het::xla::Error* HetXlaApply(het::xla::Frame* frame);

}  // extern "C"
