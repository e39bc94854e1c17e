#include "het_tf/core/device/device_copies.h"

namespace het {

Result<DeviceCopies*> DeviceCopies::Get() {
  static std::mutex* const mutex = new std::mutex();
  static DeviceCopies* copies = nullptr;  // never destroyed: kernels may outlive static destructors
  std::lock_guard<std::mutex> lock(*mutex);
  if (copies == nullptr) {
    HET_ASSIGN_OR_RETURN(const auto library, DeviceLibrary::Get());
    HET_RETURN_IF_ERROR(library->Describe().status());
    HetDevContext* context = nullptr;
    HET_RETURN_IF_ERROR(
        library->ToStatus(library->HetDevCreateContext(library->device(), &context), "opening the GPU"));
    copies = new DeviceCopies(library, context);
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
