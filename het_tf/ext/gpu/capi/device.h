// The library that uses a GPU, and the rows that fit into its memory. Codes and HetText() as in management.h.
#pragma once

#include "het_tf/capi/management.h"

extern "C" {

// Loads the library that uses the device (ext/gpu/cc/abi.h) by path; `device` is numbered among the visible
// ones. Once a process; an equal second call is fine. FailedPrecondition: another library or device is in
// use, or the library has another version. NotFound: it cannot be loaded.
HET_EXPORT int HetLoadDeviceLibrary(const char* path, int device);
// Text: one JSON object: "library", "device", and of HetDevInfo "executor", "built", "name",
// "compute_capability", "driver_version", "runtime_version", "multiprocessors", "memory_bytes", "free_bytes".
// FailedPrecondition: there is no device, no library, or the driver is too old; the text has the remedy.
HET_EXPORT int HetDescribeDevice();

}  // extern "C"
