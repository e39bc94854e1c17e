// The library that works a GPU, and what fits into its memory. Codes and HetText() as in management.h.
#pragma once

#include "het_tf/capi/management.h"

extern "C" {

// The library that works the device (core/device/abi.h), by path; and the device, a number among
// those that this process sees. Once a process; an equal second call is fine. FailedPrecondition: others are
// in use, or the library is of another version. NotFound: it cannot be loaded.
HET_EXPORT int HetLoadDeviceLibrary(const char* path, int device);
// Text: one JSON object: "library", "device", and of HetDevInfo "executor", "built", "name",
// "compute_capability", "driver_version", "runtime_version", "multiprocessors", "memory_bytes", "free_bytes".
// FailedPrecondition: there is no device, no library, or the driver is too old; the text has the remedy.
HET_EXPORT int HetDescribeDevice();

}  // extern "C"
