// The few functions of a device's runtime that the library needs: cuda_runtime.cu, and for tests
// tests/ext/gpu/device/host/runtime.cc. Errors are thrown as a Failure (context.h), except that allocations
// return null when memory is exhausted.
#pragma once

#include <cstddef>
#include <string>

#include "het_tf/ext/gpu/cc/abi.h"

namespace het::dev::runtime {

// Fills *info; when it throws, the fields that need no device are filled.
void Describe(int device, HetDevInfo* info);
// Makes it this thread's device. `what` is the last launched kernel, whose failure may show here.
void Select(int device, const char* what);
// Loads all kernels on this thread's device, so that later launches need no memory.
void LoadCode();
// This thread's current context, which the caller may have chosen and must get back.
struct OfThread {
  bool known = false;
  void* context = nullptr;  // null: no context yet
};
OfThread Current();
void Restore(const OfThread& was);
// Throws HET_DEV_INVALID if the stream belongs to another device.
void CheckStream(int device, HetDevStream stream);
size_t FreeBytes();

void* Allocate(size_t bytes);
void Free(void* memory);
void* AllocateLocked(size_t bytes);  // page-locked host memory
void FreeLocked(void* memory);

enum class Direction { kIn, kOut, kWithin };
void Copy(void* to, const void* from, size_t bytes, Direction direction, HetDevStream stream);
void Fill(void* to, unsigned char byte, size_t bytes, HetDevStream stream);

// As Select, but returns the error that has made the device unusable for this process, whoever has caused it;
// empty: none so far. `stream` is one of the device.
std::string SelectOrError(int device, HetDevStream stream);
// `what` is the last launched kernel.
void CheckLaunch(const char* what);
void Wait(HetDevStream stream, const char* what);
void WaitForDevice(const char* what);

// A stream that is done before others, and that the legacy default stream does not wait for.
HetDevStream CreateStream();
void DestroyStream(HetDevStream stream);

void* CreateEvent();
void DestroyEvent(void* event);
void Record(void* event, HetDevStream stream);
void WaitForEvent(void* event, const char* what);
// Later work on the stream comes after what the event was last recorded behind. The host does not wait.
void WaitOnStream(HetDevStream stream, void* event);

// Whether it is memory of a device.
bool OnDevice(const void* memory);
// The address at which kernels can read a caller's device memory.
const void* ForeignAddress(const void* device);

}  // namespace het::dev::runtime
