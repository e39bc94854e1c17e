// Copies between the device and host memory, for calls whose ids and rows are on the device while their
// tables are not: one context for the process.
#pragma once

#include <cstddef>
#include <mutex>

#include "het_tf/core/device/library.h"

namespace het {

class DeviceCopies {
 public:
  // FailedPrecondition: there is no library or device.
  static Result<DeviceCopies*> Get();

  // The copy has ended when they return. Thread-safe.
  Status In(void* device, const void* host, size_t bytes, HetDevStream stream);
  Status Out(void* host, const void* device, size_t bytes, HetDevStream stream);

 private:
  DeviceCopies(const DeviceLibrary* library, HetDevContext* context) : library_(library), context_(context) {}

  const DeviceLibrary* const library_;
  HetDevContext* const context_;
  std::mutex mutex_;  // guards the context
};

}  // namespace het
