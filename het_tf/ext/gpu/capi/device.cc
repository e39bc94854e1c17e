#include "het_tf/ext/gpu/capi/device.h"

#include <nlohmann/json.hpp>

#include "het_tf/capi/answer.h"
#include "het_tf/ext/gpu/cc/device_backend.h"
#include "het_tf/ext/gpu/cc/library.h"

using het::Answer;
using het::Status;
using het::Text;

[[maybe_unused]] static const bool device_backends = het::AddDeviceBackends();

int HetLoadDeviceLibrary(const char* path, int device) {
  return Answer([&] { return het::DeviceLibrary::Load(path, device); });
}

int HetDescribeDevice() {
  return Answer([&]() -> Status {
    HET_ASSIGN_OR_RETURN(const auto library, het::DeviceLibrary::Get());
    HET_ASSIGN_OR_RETURN(const auto described, library->Describe());
    const HetDevInfo& info = described;
    Text() = nlohmann::json({{"library", library->path()},
                             {"device", library->device()},
                             {"executor", info.executor},
                             {"built", info.built},
                             {"name", info.name},
                             {"compute_capability", info.compute_capability},
                             {"driver_version", info.driver_version},
                             {"runtime_version", info.runtime_version},
                             {"multiprocessors", info.multiprocessors},
                             {"memory_bytes", info.memory_bytes},
                             {"free_bytes", info.free_bytes}})
                 .dump();
    return Status();
  });
}
