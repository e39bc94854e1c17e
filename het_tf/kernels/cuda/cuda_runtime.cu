// runtime.h on a GPU.
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "het_tf/kernels/cuda/context.h"
#include "het_tf/kernels/cuda/runtime.h"
#include "het_tf/kernels/cuda/tile.h"

#ifndef HET_CUDA_ARCHITECTURES
#define HET_CUDA_ARCHITECTURES "unknown architectures"
#endif

namespace het::dev {
namespace runtime {
namespace {

#define HET_TEXT2(x) #x
#define HET_TEXT(x) HET_TEXT2(x)
constexpr const char* kBuilt =
    "nvcc " HET_TEXT(__CUDACC_VER_MAJOR__) "." HET_TEXT(__CUDACC_VER_MINOR__) ", " HET_CUDA_ARCHITECTURES;
constexpr int kOldest = 75;  // compute capability x 10

std::string Version(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

void Check(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();  // clears it; else this thread's next launch would report it
  Fail(HET_DEV_FAILED, what + ": " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error));
}

std::string Kernel(const char* what) { return std::string("the GPU, at or before kernel '") + what + "'"; }

cudaStream_t Stream(HetDevStream stream) { return static_cast<cudaStream_t>(stream); }

// The driver's functions, which cudart has loaded already. The runtime's cudaGetDevice and cudaSetDevice do
// not suffice: restoring a fresh thread's 0 would create a context on GPU 0.
struct Driver {
  CUresult (*get_current)(CUcontext*) = nullptr;
  CUresult (*set_current)(CUcontext) = nullptr;
};
const Driver& TheDriver() {
  static const Driver driver = [] {
    Driver found;
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return found;
    found.get_current = reinterpret_cast<CUresult (*)(CUcontext*)>(dlsym(library, "cuCtxGetCurrent"));
    found.set_current = reinterpret_cast<CUresult (*)(CUcontext)>(dlsym(library, "cuCtxSetCurrent"));
    return found;
  }();
  return driver;
}

std::vector<const void*>& Kernels() {
  static std::vector<const void*> kernels;
  return kernels;
}

__global__ void Nothing() {}

// All files are compiled for the same GPUs, so checking one kernel suffices.
void CheckCode(int device, const HetDevInfo& info) {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, Nothing);
  const std::string capability =
      std::to_string(info.compute_capability / 10) + "." + std::to_string(info.compute_capability % 10);
  if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction ||
      error == cudaErrorUnsupportedPtxVersion) {
    (void)cudaGetLastError();
    Fail(HET_DEV_NO_DEVICE, "GPU " + std::to_string(device) + " (" + info.name + ") has compute capability " +
                                capability + ", and libhet_cuda.so has no code for it (" + kBuilt +
                                "). Remedy: build it with -DHET_CUDA_ARCH=" +
                                std::to_string(info.compute_capability) + ", or all");
  }
  Check(error, "looking at the code for GPU " + std::to_string(device));
}

}  // namespace

void Describe(int device, HetDevInfo* info) {
  std::memset(info, 0, sizeof(*info));
  info->abi_version = HET_DEV_ABI_VERSION;
  info->executor = "cuda";
  info->built = kBuilt;
  (void)cudaRuntimeGetVersion(&info->runtime_version);
  if (cudaDriverGetVersion(&info->driver_version) != cudaSuccess) info->driver_version = 0;
  if (info->driver_version == 0) {
    Fail(HET_DEV_NO_DEVICE,
         "there is no NVIDIA driver (libcuda.so.1) here. Remedy: install one for CUDA " +
             Version(info->runtime_version) +
             " or newer; in a container, start it with the NVIDIA container toolkit (--gpus all)");
  }
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaErrorInsufficientDriver || info->driver_version / 1000 < info->runtime_version / 1000) {
    (void)cudaGetLastError();
    Fail(HET_DEV_DRIVER_TOO_OLD, "the NVIDIA driver is for CUDA " + Version(info->driver_version) +
                                     "; libhet_cuda.so needs one for CUDA " +
                                     std::to_string(info->runtime_version / 1000) +
                                     ".0 or newer. Remedy: update the driver");
  }
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    Fail(HET_DEV_NO_DEVICE, std::string("no GPU can be used: ") + cudaGetErrorString(error));
  }
  if (device < 0 || device >= devices) {
    Fail(HET_DEV_NO_DEVICE, "GPU " + std::to_string(device) + ": " + std::to_string(devices) +
                                " are visible (see CUDA_VISIBLE_DEVICES)");
  }
  cudaDeviceProp properties;
  Check(cudaGetDeviceProperties(&properties, device), "properties of GPU " + std::to_string(device));
  std::snprintf(info->name, sizeof(info->name), "%.127s", properties.name);
  info->compute_capability = properties.major * 10 + properties.minor;
  info->multiprocessors = properties.multiProcessorCount;
  info->memory_bytes = properties.totalGlobalMem;
  if (info->compute_capability < kOldest) {
    Fail(HET_DEV_NO_DEVICE, "GPU " + std::to_string(device) + " (" + info->name +
                                ") has compute capability " + std::to_string(properties.major) + "." +
                                std::to_string(properties.minor) + "; 7.5 is the oldest that is supported");
  }
  Select(device, "none");
  CheckCode(device, *info);
  info->free_bytes = FreeBytes();
}

void LoadCode() {
  for (const void* kernel : Kernels()) {
    cudaFuncAttributes attributes;
    const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
    if (error == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      Fail(HET_DEV_OUT_OF_MEMORY, "there is no memory on the GPU for the code of libhet_cuda.so; " +
                                      std::to_string(FreeBytes()) + " bytes are free");
    }
    Check(error, "loading code to the GPU");
  }
}

void Select(int device, const char* what) {
  const cudaError_t error = cudaSetDevice(device);
  if (error != cudaSuccess) Check(error, "choosing GPU " + std::to_string(device) + "; " + Kernel(what));
}

OfThread Current() {
  OfThread current;
  if (TheDriver().get_current == nullptr || TheDriver().set_current == nullptr) return current;
  CUcontext context = nullptr;
  const CUresult result = TheDriver().get_current(&context);
  current.known = result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_INITIALIZED;
  current.context = context;
  return current;
}

void Restore(const OfThread& was) {
  CUcontext now = nullptr;
  if (!was.known || TheDriver().get_current(&now) != CUDA_SUCCESS || now == was.context) return;
  (void)TheDriver().set_current(static_cast<CUcontext>(was.context));
}

void CheckStream(int device, HetDevStream stream) {
#if CUDART_VERSION >= 12080
  if (stream == nullptr) return;  // belongs to the thread's device
  int of = device;
  Check(cudaStreamGetDevice(Stream(stream), &of), "asking for the GPU of a stream");
  if (of == device) return;
  Fail(HET_DEV_INVALID, "the stream is one of GPU " + std::to_string(of) + ", and the cache is on GPU " +
                            std::to_string(device) +
                            ". Remedy: place the layer on that GPU; start a process for each GPU");
#else
  (void)device, (void)stream;
#endif
}

size_t FreeBytes() {
  size_t free = 0;
  size_t total = 0;
  Check(cudaMemGetInfo(&free, &total), "asking for free memory of the GPU");
  return free;
}

void* Allocate(size_t bytes) {
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, bytes);
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    return nullptr;
  }
  Check(error, "allocating memory of the GPU");
  return memory;
}

void Free(void* memory) {
  if (cudaFree(memory) != cudaSuccess) (void)cudaGetLastError();
}

void* AllocateLocked(size_t bytes) {
  void* memory = nullptr;
  const cudaError_t error = cudaMallocHost(&memory, bytes);
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    return nullptr;
  }
  Check(error, "allocating page-locked memory");
  return memory;
}

void FreeLocked(void* memory) {
  if (cudaFreeHost(memory) != cudaSuccess) (void)cudaGetLastError();
}

void Copy(void* to, const void* from, size_t bytes, Direction direction, HetDevStream stream) {
  const cudaMemcpyKind kind = direction == Direction::kIn    ? cudaMemcpyHostToDevice
                              : direction == Direction::kOut ? cudaMemcpyDeviceToHost
                                                             : cudaMemcpyDeviceToDevice;
  Check(cudaMemcpyAsync(to, from, bytes, kind, Stream(stream)),
        "a copy of " + std::to_string(bytes) + " bytes");
}

void Fill(void* to, unsigned char byte, size_t bytes, HetDevStream stream) {
  Check(cudaMemsetAsync(to, byte, bytes, Stream(stream)), "setting " + std::to_string(bytes) + " bytes");
}

// Such errors come again from every call that asks the device. Others are of a call that has told its caller.
std::string SelectOrError(int device, HetDevStream stream) {
  cudaError_t error = cudaSetDevice(device);
  if (error == cudaSuccess) error = cudaStreamQuery(Stream(stream));
  if (error != cudaSuccess) (void)cudaGetLastError();
  if (error == cudaSuccess || error == cudaErrorNotReady) return "";
  return std::string(cudaGetErrorName(error)) + ": " + cudaGetErrorString(error);
}

void CheckLaunch(const char* what) {
  Check(cudaGetLastError(), std::string("launching kernel '") + what + "'");
}
void Wait(HetDevStream stream, const char* what) {
  Check(cudaStreamSynchronize(Stream(stream)), Kernel(what));
}
void WaitForDevice(const char* what) { Check(cudaDeviceSynchronize(), Kernel(what)); }

HetDevStream CreateStream() {
  int least = 0;
  int greatest = 0;
  Check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for priorities of streams");
  cudaStream_t stream;
  Check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest), "making a stream");
  return stream;
}
void DestroyStream(HetDevStream stream) {
  if (cudaStreamDestroy(Stream(stream)) != cudaSuccess) (void)cudaGetLastError();
}

void* CreateEvent() {
  cudaEvent_t event;
  Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
  return event;
}
void DestroyEvent(void* event) {
  if (cudaEventDestroy(static_cast<cudaEvent_t>(event)) != cudaSuccess) (void)cudaGetLastError();
}
void Record(void* event, HetDevStream stream) {
  Check(cudaEventRecord(static_cast<cudaEvent_t>(event), Stream(stream)), "recording an event");
}
void WaitForEvent(void* event, const char* what) {
  Check(cudaEventSynchronize(static_cast<cudaEvent_t>(event)), Kernel(what));
}
void WaitOnStream(HetDevStream stream, void* event) {
  Check(cudaStreamWaitEvent(Stream(stream), static_cast<cudaEvent_t>(event), 0), "waiting on a stream");
}

bool OnDevice(const void* memory) {
  cudaPointerAttributes attributes;
  const cudaError_t error = cudaPointerGetAttributes(&attributes, memory);
  if (error != cudaSuccess) (void)cudaGetLastError();
  return error == cudaSuccess && attributes.type == cudaMemoryTypeDevice;
}
const void* ForeignAddress(const void* device) { return device; }

}  // namespace runtime

bool RegisterKernel(const void* kernel) {
  runtime::Kernels().push_back(kernel);
  return true;
}

}  // namespace het::dev
