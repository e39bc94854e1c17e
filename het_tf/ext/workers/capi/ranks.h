// The connections of this rank to the others (ext/workers/cc/mesh.h), for Python: a C ABI like that of
// management.h, with the same answers.
#pragma once

#include "het_tf/capi/management.h"

extern "C" {

// sockets: `size` descriptors, that of `rank` is -1. It takes them, also when it fails.
HET_EXPORT int HetJoinRanks(int64_t rank, int64_t size, const int64_t* sockets, double timeout);
// Tells the other ranks that this one ends. Without ranks it does nothing.
HET_EXPORT int HetLeaveRanks();

}  // extern "C"
