// The connections of this rank to the others (ext/workers/cc/mesh.h), for Python: a C ABI like that of
// management.h, with the same answers. Collectives are on plain memory; those of graphs are ops
// (kernels/collective_kernels.cc). A SIGINT ends a wait for other ranks.
#pragma once

#include "het_tf/capi/management.h"

extern "C" {

// sockets: `size` descriptors, that of `rank` is -1. It takes them, also when it fails.
HET_EXPORT int HetJoinRanks(int64_t rank, int64_t size, const int64_t* sockets, double timeout);
// Tells the other ranks that this one ends. Without ranks it does nothing.
HET_EXPORT int HetLeaveRanks();

// Replaces `count` floats, of 4 or 8 bytes each, by their sums over all ranks, or by their means.
HET_EXPORT int HetSumOverRanks(const char* label, int64_t mean, int64_t bytes_each, void* values,
                               int64_t count);
// Gathers *bytes bytes of each rank. `what` describes the data, and must be equal on all ranks. *bytes
// becomes the length of *received, which must be given to HetTakeReceived and has the data in the order of
// ranks.
HET_EXPORT int HetGatherFromRanks(const char* label, const char* what, const uint8_t* data, int64_t* bytes,
                                  void** received);
// Writes the bytes to `to`, and frees them.
HET_EXPORT void HetTakeReceived(void* received, uint8_t* to);

}  // extern "C"
