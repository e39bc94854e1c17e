#include "het_tf/core/device/device_copies.h"

#include <unistd.h>

namespace het {

Result<DeviceCopies*> DeviceCopies::Get() {
  static std::mutex* const mutex = new std::mutex();
  static DeviceCopies* copies = nullptr;  // never destroyed: kernels may outlive static destructors
  std::lock_guard<std::mutex> lock(*mutex);
  if (copies == nullptr) {
    const auto library = DeviceLibrary::Get();
    if (!library.ok()) return library.status();
    const auto device = library.value()->Describe();
    if (!device.ok()) return device.status();
    HetDevContext* context = nullptr;
    HET_RETURN_IF_ERROR(library.value()->ToStatus(
        library.value()->HetDevCreateContext(library.value()->device(), &context), "opening the GPU"));
    copies = new DeviceCopies(library.value(), context, getpid());
  }
  if (copies->process_ != getpid()) {
    return FailedPrecondition(
        "this process is a fork of one that uses the GPU, and cannot use it. Start processes by spawn "
        "(multiprocessing.set_start_method(\"spawn\"))");
  }
  return copies;
}

Status DeviceCopies::In(void* device, const void* host, size_t bytes, HetDevStream stream) {
  if (bytes == 0) return Status();
  std::lock_guard<std::mutex> lock(mutex_);
  return library_->ToStatus(library_->HetDevCopyIn(context_, device, host, bytes, stream),
                            "copying rows to the GPU");
}

Status DeviceCopies::Out(void* host, const void* device, size_t bytes, HetDevStream stream) {
  if (bytes == 0) return Status();
  std::lock_guard<std::mutex> lock(mutex_);
  return library_->ToStatus(library_->HetDevCopyOut(context_, host, device, bytes, stream),
                            "copying ids or gradients from the GPU");
}

}  // namespace het
