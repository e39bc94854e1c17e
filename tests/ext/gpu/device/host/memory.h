// Device memory of the host executor. It is poisoned: HetDevMalloc and all tables give addresses that nobody
// may read or write; kernels reach the bytes through an alias elsewhere. So code of the host that touches
// device memory crashes in tests, as it would on a GPU.
//
// Not part of libhet_cuda.so.
#pragma once

#include <cstddef>

#include "het_tf/ext/gpu/cc/abi.h"

extern "C" {
// Memory of somebody else's device (the PluggableDevice of tests): ids, rows and gradients in
// [device_base, device_base + bytes) are read and written at `alias`. Addresses that nobody has told of are
// used as they are. Thread-safe.
HET_DEV_EXPORT void HetDevHostAlias(void* device_base, size_t bytes, void* alias);
HET_DEV_EXPORT void HetDevHostUnalias(void* device_base);
}

namespace het::dev {

// Own device memory is one range of addresses and its alias another: `distance` further on.
struct HostArena {
  uintptr_t begin = 0;
  uintptr_t bytes = 0;
  uintptr_t distance = 0;
};
extern HostArena host_arena;  // set once, before there is any device memory

// Pieces of it. Take answers null where there is no room.
void* HostArenaTake(size_t bytes);
void HostArenaGive(void* memory);
size_t HostArenaBytes();
size_t HostArenaFree();
// The alias of memory that is somebody else's, else the address itself.
const void* HostAliasOf(const void* device);

template <typename T>
inline T* ReadableAddress(T* device) {
  const uintptr_t at = reinterpret_cast<uintptr_t>(device);
  return at - host_arena.begin < host_arena.bytes ? reinterpret_cast<T*>(at + host_arena.distance) : device;
}

}  // namespace het::dev
