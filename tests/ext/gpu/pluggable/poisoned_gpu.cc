// A device of type GPU for TensorFlow, in host memory, for machines without one: TensorFlow's StreamExecutor
// C API, so it works with every TensorFlow that has pluggable devices, tensorflow-cpu too. TensorFlow places
// ops on it, copies to it and from it, and runs kernels that are registered for DEVICE_GPU.
//
// Its memory is *poisoned*: device addresses lead to pages that nobody may touch, so code that follows one on
// the host crashes, as it would with a GPU's. The same memory is readable and writable at another address,
// the alias, through which this file copies. The library that plays the device in het_tf's tests learns the
// alias by its function
//     void HetDevHostAlias(void* device_base, size_t bytes, void* alias);
// and is found by the environment's HET_DEVICE_LIBRARY. What TensorFlow has not written reads as NaN.
//
// Work is done when it is put on a stream: streams and events have nothing to wait for. That library's own
// work, which is late, is done before anything else touches the memory (HetDevHostFinish).
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tensorflow/c/experimental/stream_executor/stream_executor.h"

struct SP_Stream_st {};
struct SP_Event_st {};
struct SP_Timer_st {};

namespace {

constexpr uint64_t kMemory = uint64_t{1} << 30;

// One mapping, of which memory is given and never taken back: TensorFlow asks for large regions, and keeps
// them.
class Memory {
 public:
  Memory() {
    const int file = memfd_create("poisoned_gpu", 0);
    if (file < 0 || ftruncate(file, kMemory) != 0) Die("memfd_create");
    void* const device = mmap(nullptr, kMemory, PROT_NONE, MAP_SHARED, file, 0);
    void* const alias = mmap(nullptr, kMemory, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (device == MAP_FAILED || alias == MAP_FAILED) Die("mmap");
    close(file);
    device_ = static_cast<char*>(device);
    alias_ = static_cast<char*>(alias);
    Tell();
  }

  void* Allocate(uint64_t bytes) {
    bytes = (bytes + 255) / 256 * 256;
    const uint64_t at = used_.fetch_add(bytes);
    if (at + bytes > kMemory) return nullptr;
    std::memset(alias_ + at, 0xff, bytes);
    return device_ + at;
  }
  // Where the host finds `bytes` bytes of device memory.
  void* Host(const void* device, uint64_t bytes) const {
    const char* const address = static_cast<const char*>(device);
    if (address < device_ || address + bytes > device_ + kMemory) Die("an address that is not the device's");
    if (finish_ != nullptr) finish_();
    return alias_ + (address - device_);
  }
  int64_t free() const { return static_cast<int64_t>(kMemory - used_); }

 private:
  [[noreturn]] static void Die(const char* what) {
    std::fprintf(stderr, "poisoned_gpu: %s\n", what);
    std::abort();
  }
  // Tells the device's library, if there is one, where the memory can be read.
  void Tell() {
    const char* const path = std::getenv("HET_DEVICE_LIBRARY");
    if (path == nullptr || *path == 0) return;
    void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;  // het_tf says so
    using Alias = void (*)(void*, size_t, void*);
    if (const auto tell = reinterpret_cast<Alias>(dlsym(library, "HetDevHostAlias"))) {
      tell(device_, kMemory, alias_);
    }
    finish_ = reinterpret_cast<void (*)()>(dlsym(library, "HetDevHostFinish"));
  }

  char* device_ = nullptr;
  char* alias_ = nullptr;
  std::atomic<uint64_t> used_{0};
  void (*finish_)() = nullptr;
};

Memory& TheMemory() {
  static Memory* const memory = new Memory();
  return *memory;
}

void* Host(const SP_DeviceMemoryBase* memory, uint64_t bytes) {
  return TheMemory().Host(memory->opaque, bytes);
}

// --- the functions of a stream executor, in its order

void Allocate(const SP_Device*, uint64_t bytes, int64_t, SP_DeviceMemoryBase* memory) {
  memory->struct_size = SP_DEVICE_MEMORY_BASE_STRUCT_SIZE;
  memory->opaque = TheMemory().Allocate(bytes);
  memory->size = memory->opaque == nullptr ? 0 : bytes;
}
void Deallocate(const SP_Device*, SP_DeviceMemoryBase* memory) { memory->opaque = nullptr; }
// TensorFlow wants its tensors aligned.
void* AllocateHost(const SP_Device*, uint64_t bytes) {
  return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
}
void DeallocateHost(const SP_Device*, void* memory) { std::free(memory); }
TF_Bool GetStats(const SP_Device*, SP_AllocatorStats*) { return 0; }
TF_Bool MemoryUsage(const SP_Device*, int64_t* free, int64_t* total) {
  *free = TheMemory().free();
  *total = kMemory;
  return 1;
}

template <typename Handle, typename Struct>
void Create(const SP_Device*, Handle* handle, TF_Status*) {
  *handle = new Struct();
}
template <typename Handle>
void Destroy(const SP_Device*, Handle handle) {
  delete handle;
}
void StreamStatus(const SP_Device*, SP_Stream, TF_Status* status) { TF_SetStatus(status, TF_OK, ""); }
SE_EventStatus EventStatus(const SP_Device*, SP_Event) { return SE_EVENT_COMPLETE; }
// What has nothing to do.
template <typename... Of>
void Nothing(Of...) {}

// Copies on a stream, and without one.
template <typename... Stream>
void ToHost(const SP_Device*, Stream..., void* host, const SP_DeviceMemoryBase* device, uint64_t bytes,
            TF_Status*) {
  std::memcpy(host, Host(device, bytes), bytes);
}
template <typename... Stream>
void ToDevice(const SP_Device*, Stream..., SP_DeviceMemoryBase* device, const void* host, uint64_t bytes,
              TF_Status*) {
  std::memcpy(Host(device, bytes), host, bytes);
}
template <typename... Stream>
void Within(const SP_Device*, Stream..., SP_DeviceMemoryBase* to, const SP_DeviceMemoryBase* from,
            uint64_t bytes, TF_Status*) {
  std::memmove(Host(to, bytes), Host(from, bytes), bytes);
}
void Zero(const SP_Device*, SP_Stream, SP_DeviceMemoryBase* memory, uint64_t bytes, TF_Status*) {
  std::memset(Host(memory, bytes), 0, bytes);
}
void Fill(const SP_Device*, SP_Stream, SP_DeviceMemoryBase* memory, uint8_t pattern, uint64_t bytes,
          TF_Status*) {
  std::memset(Host(memory, bytes), pattern, bytes);
}
void Fill32(const SP_Device*, SP_Stream, SP_DeviceMemoryBase* memory, uint32_t pattern, uint64_t bytes,
            TF_Status*) {
  char* const host = static_cast<char*>(Host(memory, bytes));
  for (uint64_t at = 0; at + sizeof(pattern) <= bytes; at += sizeof(pattern)) {
    std::memcpy(host + at, &pattern, sizeof(pattern));
  }
}
TF_Bool HostCallback(const SP_Device*, SP_Stream, SE_StatusCallbackFn function, void* argument) {
  TF_Status* const status = TF_NewStatus();
  function(argument, status);
  const bool ok = TF_GetCode(status) == TF_OK;
  TF_DeleteStatus(status);
  return ok;
}

// --- what TensorFlow asks a platform for

void DeviceCount(const SP_Platform*, int* count, TF_Status*) { *count = 1; }
void CreateDevice(const SP_Platform*, SE_CreateDeviceParams* params, TF_Status*) {
  params->device->struct_size = SP_DEVICE_STRUCT_SIZE;
  params->device->ordinal = params->ordinal;
  params->device->hardware_name = "poisoned host memory";
}
void CreateDeviceFns(const SP_Platform*, SE_CreateDeviceFnsParams* params, TF_Status*) {
  *params->device_fns = SP_DeviceFns{};
  params->device_fns->struct_size = SP_DEVICE_FNS_STRUCT_SIZE;
}
void CreateExecutor(const SP_Platform*, SE_CreateStreamExecutorParams* params, TF_Status*) {
  SP_StreamExecutor* const executor = params->stream_executor;
  *executor = SP_StreamExecutor{};
  executor->struct_size = SP_STREAMEXECUTOR_STRUCT_SIZE;
  executor->allocate = Allocate;
  executor->deallocate = Deallocate;
  executor->host_memory_allocate = AllocateHost;
  executor->host_memory_deallocate = DeallocateHost;
  executor->get_allocator_stats = GetStats;
  executor->device_memory_usage = MemoryUsage;
  executor->create_stream = Create<SP_Stream, SP_Stream_st>;
  executor->destroy_stream = Destroy<SP_Stream>;
  executor->create_stream_dependency = Nothing;
  executor->get_stream_status = StreamStatus;
  executor->create_event = Create<SP_Event, SP_Event_st>;
  executor->destroy_event = Destroy<SP_Event>;
  executor->get_event_status = EventStatus;
  executor->record_event = Nothing;
  executor->wait_for_event = Nothing;
  executor->create_timer = Create<SP_Timer, SP_Timer_st>;
  executor->destroy_timer = Destroy<SP_Timer>;
  executor->start_timer = Nothing;
  executor->stop_timer = Nothing;
  executor->memcpy_dtoh = ToHost<SP_Stream>;
  executor->memcpy_htod = ToDevice<SP_Stream>;
  executor->memcpy_dtod = Within<SP_Stream>;
  executor->sync_memcpy_dtoh = ToHost<>;
  executor->sync_memcpy_htod = ToDevice<>;
  executor->sync_memcpy_dtod = Within<>;
  executor->block_host_for_event = Nothing;
  executor->block_host_until_done = Nothing;
  executor->synchronize_all_activity = Nothing;
  executor->mem_zero = Zero;
  executor->memset = Fill;
  executor->memset32 = Fill32;
  executor->host_callback = HostCallback;
}
void CreateTimerFns(const SP_Platform*, SP_TimerFns* fns, TF_Status*) {
  fns->struct_size = SP_TIMER_FNS_STRUCT_SIZE;
  fns->nanoseconds = [](SP_Timer) -> uint64_t { return 1; };
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void SE_InitPlugin(SE_PlatformRegistrationParams* params,
                                                                     TF_Status*) {
  params->platform->struct_size = SP_PLATFORM_STRUCT_SIZE;
  params->platform->name = "POISONED";
  params->platform->type = "GPU";
  params->platform->supports_unified_memory = 0;
  params->platform->use_bfc_allocator = 1;
  params->platform->force_memory_growth = 1;
  SP_PlatformFns* const fns = params->platform_fns;
  fns->struct_size = SP_PLATFORM_FNS_STRUCT_SIZE;
  fns->get_device_count = DeviceCount;
  fns->create_device = CreateDevice;
  fns->destroy_device = Nothing;
  fns->create_device_fns = CreateDeviceFns;
  fns->destroy_device_fns = Nothing;
  fns->create_stream_executor = CreateExecutor;
  fns->destroy_stream_executor = Nothing;
  fns->create_timer_fns = CreateTimerFns;
  fns->destroy_timer_fns = Nothing;
  params->destroy_platform = Nothing;
  params->destroy_platform_fns = Nothing;
}
