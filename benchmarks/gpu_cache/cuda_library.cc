#include "tests/ext/gpu/device/check/library.h"

#include <dlfcn.h>

#include <stdexcept>

namespace het::device_check {
namespace {

// Two streams of GPU 0 that wait for no other, as TensorFlow's are: by the driver, so that this builds
// without CUDA.
std::vector<HetDevStream> MakeStreams() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  const auto call = [driver](const char* name, auto... arguments) {
    using Function = int (*)(decltype(arguments)...);
    const auto function = driver == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(driver, name));
    const int code = function == nullptr ? -1 : function(arguments...);
    if (code != 0) throw std::runtime_error(std::string(name) + " answers " + std::to_string(code));
  };
  constexpr unsigned kNonBlocking = 1;
  int device = 0;
  void *context = nullptr, *first = nullptr, *second = nullptr;
  call("cuDeviceGet", &device, 0);
  call("cuDevicePrimaryCtxRetain", &context, device);
  call("cuCtxPushCurrent_v2", context);
  call("cuStreamCreate", &first, kNonBlocking);
  call("cuStreamCreate", &second, kNonBlocking);
  call("cuCtxPopCurrent_v2", &context);
  return {nullptr, first, second};
}

}  // namespace

std::vector<HetDevStream> Library::Streams() const {
  if (std::string(info.executor) == "cuda") {
    static const std::vector<HetDevStream> streams = MakeStreams();
    return streams;
  }
  static char names[2];
  return {nullptr, &names[0], &names[1]};
}

std::unique_ptr<Library> Library::Open(const std::string& path, std::string* error) {
  // dlopen looks for a name without a slash in system folders.
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    *error = "cannot load " + file + ": " + dlerror();
    return nullptr;
  }
  auto library = std::make_unique<Library>();
  library->path = path;
#define HET_DEVICE_LOAD(name)                                                               \
  library->name = reinterpret_cast<decltype(&HetDev##name)>(dlsym(handle, "HetDev" #name)); \
  if (library->name == nullptr) {                                                           \
    *error = path + " has no function HetDev" #name + "; is it a library of abi.h?";        \
    return nullptr;                                                                         \
  }
  HET_DEVICE_FUNCTIONS(HET_DEVICE_LOAD)
#undef HET_DEVICE_LOAD
  library->Seed = reinterpret_cast<void (*)(uint64_t)>(dlsym(handle, "HetDevHostSeed"));
  if (library->AbiVersion() != HET_DEV_ABI_VERSION) {
    *error = path + " is of ABI version " + std::to_string(library->AbiVersion()) + "; this program is of " +
             std::to_string(HET_DEV_ABI_VERSION) + ": build both from the same sources";
    return nullptr;
  }
  if (library->Describe(0, &library->info) != HET_DEV_OK) {
    *error = path + ": " + library->Error();
    return nullptr;
  }
  return library;
}

}  // namespace het::device_check
