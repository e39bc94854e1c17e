// The library that uses the device (ext/gpu/cc/abi.h), loaded at run time: a process knows which one it
// needs when it has looked for a GPU. There is one a process, and it is never unloaded: its work on the
// device lasts as long as the process.
#pragma once

#include <string>

#include "het_tf/core/base/status.h"
#include "het_tf/ext/gpu/cc/abi.h"

namespace het {

#define HET_DEVICE_FUNCTIONS(X) \
  X(HetDevAbiVersion)           \
  X(HetDevError)                \
  X(HetDevDescribe)             \
  X(HetDevCreateContext)        \
  X(HetDevDestroyContext)       \
  X(HetDevMalloc)               \
  X(HetDevFree)                 \
  X(HetDevCopyIn)               \
  X(HetDevCopyOut)              \
  X(HetDevTableBytes)           \
  X(HetDevCreateTable)          \
  X(HetDevDestroyTable)         \
  X(HetDevState)                \
  X(HetDevCreateCall)           \
  X(HetDevDestroyCall)          \
  X(HetDevResetCall)            \
  X(HetDevLookup)               \
  X(HetDevStage)                \
  X(HetDevInstall)              \
  X(HetDevGather)               \
  X(HetDevSum)                  \
  X(HetDevTick)                 \
  X(HetDevCollect)              \
  X(HetDevTake)                 \
  X(HetDevForget)               \
  X(HetDevForgetKeys)           \
  X(HetDevInspect)              \
  X(HetDevFailAllocation)

// Its functions, by their names: library->HetDevLookup(...).
class DeviceLibrary {
 public:
  // `device`: the device to use, numbered among the visible ones. FailedPrecondition: another library or
  // device is in use, or the library has another version. NotFound: it cannot be loaded. Repeating an equal
  // call is fine.
  static Status Load(const std::string& path, int device);
  // FailedPrecondition: no library was loaded.
  static Result<const DeviceLibrary*> Get();

  const std::string& path() const { return path_; }
  int device() const { return device_; }
  // FailedPrecondition: there is no device, or its driver is too old.
  Result<HetDevInfo> Describe() const;

  // Converts a function's answer. `doing` is the subject of the message: "a lookup of table 't'".
  Status ToStatus(int answer, const std::string& doing) const;

#define HET_MEMBER(name) decltype(&::name) name = nullptr;
  HET_DEVICE_FUNCTIONS(HET_MEMBER)
#undef HET_MEMBER

 private:
  Status Open(const std::string& path);

  std::string path_;
  int device_ = 0;
};

}  // namespace het
