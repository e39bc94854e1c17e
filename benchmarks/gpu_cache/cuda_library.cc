#include "benchmarks/gpu_cache/cuda_library.h"

#include <dlfcn.h>

namespace het::bench {
std::unique_ptr<Library> Library::Open(const std::string& path, std::string* error) {
  // dlopen looks for a name without a slash in system folders.
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    *error = "cannot load " + file + ": " + dlerror();
    return nullptr;
  }
  auto library = std::make_unique<Library>();
#define HET_DEVICE_LOAD(name)                                                               \
  library->name = reinterpret_cast<decltype(&HetDev##name)>(dlsym(handle, "HetDev" #name)); \
  if (library->name == nullptr) {                                                           \
    *error = path + " has no function HetDev" #name + "; is it a library of abi.h?";        \
    return nullptr;                                                                         \
  }
  HET_DEVICE_FUNCTIONS(HET_DEVICE_LOAD)
#undef HET_DEVICE_LOAD
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

}  // namespace het::bench
