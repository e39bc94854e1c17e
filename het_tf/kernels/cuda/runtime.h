// The few functions of a device's runtime that the library needs: cuda_runtime.cu, and for tests
// tests/cpp/device/host/runtime.cc. What goes wrong is thrown as a Failure (context.h), except for memory
// that is not there: then the answer is null.
#pragma once

#include <cstddef>

#include "het_tf/core/device/abi.h"

namespace het::dev::runtime {

// Fills *info; fields that need no device also when it throws.
void Describe(int device, HetDevInfo* info);
// Makes it the device of this thread. `what` is the last kernel that was launched: its failure may show here.
void Select(int device, const char* what);
// Loads all kernels, on the device of this thread: from here on no launch needs memory.
void LoadCode();
// What this thread works with, to be put back: it is somebody else's, who may have chosen another device.
struct OfThread {
  bool known = false;
  void* context = nullptr;  // null: nothing yet
};
OfThread Current();
void Restore(const OfThread& was);
// Throws HET_DEV_INVALID where the stream is another device's.
void CheckStream(int device, HetDevStream stream);
size_t FreeBytes();

void* Allocate(size_t bytes);
void Free(void* memory);
void* AllocateLocked(size_t bytes);  // page-locked memory of the host
void FreeLocked(void* memory);

enum class Direction { kIn, kOut, kWithin };
void Copy(void* to, const void* from, size_t bytes, Direction direction, HetDevStream stream);
void Fill(void* to, unsigned char byte, size_t bytes, HetDevStream stream);

// `what` is the last kernel that was launched.
void CheckLaunch(const char* what);
void Wait(HetDevStream stream, const char* what);
void WaitForDevice(const char* what);

void* CreateEvent();
void DestroyEvent(void* event);
void Record(void* event, HetDevStream stream);
void WaitForEvent(void* event, const char* what);

// Where kernels find memory of a caller's device.
const void* ForeignAddress(const void* device);

}  // namespace het::dev::runtime
