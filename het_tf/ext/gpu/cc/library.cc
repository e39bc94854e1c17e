#include "het_tf/ext/gpu/cc/library.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>

#include <memory>
#include <mutex>

namespace het {
namespace {

struct Loaded {
  std::mutex mutex;
  std::unique_ptr<const DeviceLibrary> library;  // set once
};

// Never destroyed: kernels may outlive static destructors.
Loaded& GetLoaded() {
  static Loaded* const loaded = new Loaded();
  return *loaded;
}

std::string RealPath(const std::string& path) {
  char real[PATH_MAX];
  return realpath(path.c_str(), real) == nullptr ? path : real;
}

}  // namespace

Status DeviceLibrary::Open(const std::string& path) {
  path_ = path;
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = dlerror();
    return Status(
        Code::kNotFound,
        "the library for caches in GPU memory cannot be loaded: " + std::string(why == nullptr ? path : why) +
            ". Build it (docs/gpu.md), install a het_tf that has it, or use het_tf.Cache(device=\"cpu\")");
  }
  const char* missing = nullptr;
#define HET_FIND(name)                                           \
  name = reinterpret_cast<decltype(name)>(dlsym(handle, #name)); \
  if (name == nullptr && missing == nullptr) missing = #name;
  HET_DEVICE_FUNCTIONS(HET_FIND)
#undef HET_FIND
  const int version = HetDevAbiVersion == nullptr ? 0 : HetDevAbiVersion();
  if (missing == nullptr && version == HET_DEV_ABI_VERSION) return Status();
  dlclose(handle);
  return FailedPrecondition("the library for caches in GPU memory at " + path + " is not of this het_tf: " +
                            (version != 0 && version != HET_DEV_ABI_VERSION
                                 ? "its version is " + std::to_string(version) + ", and " +
                                       std::to_string(HET_DEV_ABI_VERSION) + " is needed"
                                 : "it has no function " + std::string(missing)) +
                            ". Build both from the same sources");
}

Status DeviceLibrary::Load(const std::string& given, int device) {
  const std::string path = RealPath(given);
  Loaded& loaded = GetLoaded();
  std::lock_guard<std::mutex> lock(loaded.mutex);
  if (device < 0) {
    return InvalidArgument("device is " + std::to_string(device) +
                           "; give the number of a GPU that this process sees, from 0");
  }
  if (loaded.library != nullptr) {
    if (loaded.library->path() == path && loaded.library->device() == device) return Status();
    if (loaded.library->path() == path) {
      return FailedPrecondition("this process has caches in the memory of GPU " +
                                std::to_string(loaded.library->device()) + ", and cannot use GPU " +
                                std::to_string(device) + " too. Start a process for each GPU");
    }
    return FailedPrecondition("this process uses the library " + loaded.library->path() +
                              " for caches in GPU memory, and cannot use " + path +
                              " too. Start another process");
  }
  auto library = std::make_unique<DeviceLibrary>();
  HET_RETURN_IF_ERROR(library->Open(path));
  library->device_ = device;
  loaded.library = std::move(library);
  return Status();
}

Result<const DeviceLibrary*> DeviceLibrary::Get() {
  Loaded& loaded = GetLoaded();
  std::lock_guard<std::mutex> lock(loaded.mutex);
  if (loaded.library != nullptr) return loaded.library.get();
  return FailedPrecondition(
      "no library for caches in GPU memory is loaded in this process. TensorFlow for GPUs and a het_tf with "
      "GPU kernels are needed (python -m het_tf doctor tells what is missing); or use "
      "het_tf.Cache(device=\"cpu\")");
}

Result<HetDevInfo> DeviceLibrary::Describe() const {
  HetDevInfo info = {};
  HET_RETURN_IF_ERROR(ToStatus(HetDevDescribe(device_, &info), "looking for a GPU"));
  return info;
}

Status DeviceLibrary::ToStatus(int answer, const std::string& doing) const {
  if (answer == HET_DEV_OK) return Status();
  const std::string text = doing + ": " + HetDevError();
  switch (answer) {
    case HET_DEV_INVALID:
      return InvalidArgument(text);
    case HET_DEV_OUT_OF_MEMORY:
      return Status(Code::kResourceExhausted,
                    "out of GPU memory during " + text +
                        ". No row was changed. Give het_tf.Cache fewer rows, use a smaller batch, or tell "
                        "TensorFlow to "
                        "leave memory free (tf.config.experimental.set_memory_growth)");
    case HET_DEV_OUT_OF_HOST_MEMORY:
      return Status(Code::kResourceExhausted, "out of memory during " + text +
                                                  ". No row was changed. Use a smaller batch, or a machine "
                                                  "with more memory");
    case HET_DEV_NO_DEVICE:
      return FailedPrecondition(text +
                                ". Use het_tf.Cache(device=\"cpu\"), or a machine with a GPU that is visible "
                                "to this process (CUDA_VISIBLE_DEVICES)");
    case HET_DEV_DRIVER_TOO_OLD:
      return FailedPrecondition(text + ". Install that driver, or use het_tf.Cache(device=\"cpu\")");
    default:
      return Status(Code::kInternal, text);
  }
}

}  // namespace het
