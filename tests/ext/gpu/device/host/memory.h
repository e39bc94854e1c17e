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
// [device_base, device_base + bytes) are read and written at `alias`. Other addresses are used as they are.
HET_DEV_EXPORT void HetDevHostAlias(void* device_base, size_t bytes, void* alias);
}

namespace het::dev {

// Device memory is one range of addresses and its alias another: `distance` further on.
struct HostArena {
  uintptr_t begin = 0;
  uintptr_t bytes = 0;
  uintptr_t distance = 0;

  template <typename T>
  T* Readable(T* device) const {
    const uintptr_t at = reinterpret_cast<uintptr_t>(device);
    return at - begin < bytes ? reinterpret_cast<T*>(at + distance) : device;
  }
};
extern HostArena host_arena;  // the own one; set once, before there is any device memory

// Pieces of it. Take answers null where there is no room.
void* HostArenaTake(size_t bytes);
void HostArenaGive(void* memory);
size_t HostArenaBytes();
size_t HostArenaFree();
// The alias of memory that is somebody else's, else the address itself.
const void* HostAliasOf(const void* device);

template <typename T>
inline T* ReadableAddress(T* device) {
  return host_arena.Readable(device);
}

}  // namespace het::dev
