// Copies between device and host memory, for calls whose ids and rows are on the device while their tables
// are in host memory. The process has one context for them.
#pragma once

#include <cstddef>
#include <mutex>

#include "het_tf/core/device/library.h"

namespace het {

class DeviceCopies {
 public:
  // FailedPrecondition: there is no library or device.
  static Result<DeviceCopies*> Get();

  // Synchronous and thread-safe.
  Status In(void* device, const void* host, size_t bytes, HetDevStream stream);
  Status Out(void* host, const void* device, size_t bytes, HetDevStream stream);

 private:
  DeviceCopies(const DeviceLibrary* library, HetDevContext* context) : library_(library), context_(context) {}

  const DeviceLibrary* const library_;
  HetDevContext* const context_;
  std::mutex mutex_;  // guards the context
};

}  // namespace het
