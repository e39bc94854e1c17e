// runtime.h where the host plays the device: everything is done when it is asked for.
#include "het_tf/kernels/cuda/runtime.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "het_tf/kernels/cuda/context.h"
#include "tests/ext/gpu/device/host/executor.h"
#include "tests/ext/gpu/device/host/memory.h"

namespace het::dev {

void RunOnHostThreads(uint64_t items, const std::function<void(uint64_t first, uint64_t step)>& run) {
  const char* text = std::getenv("HET_DEV_HOST_THREADS");
  const long asked = text == nullptr ? 1 : std::strtol(text, nullptr, 10);
  const uint64_t threads = asked < 1 ? 1 : asked > 64 ? 64 : static_cast<uint64_t>(asked);
  if (threads == 1 || items < 2) return run(0, 1);
  std::vector<std::thread> others;
  others.reserve(threads - 1);
  for (uint64_t i = 1; i < threads; ++i) others.emplace_back([&run, i, threads] { run(i, threads); });
  run(0, threads);
  for (std::thread& other : others) other.join();
}

namespace runtime {

void Describe(int device, HetDevInfo* info) {
  std::memset(info, 0, sizeof(*info));
  info->abi_version = HET_DEV_ABI_VERSION;
  info->executor = "host";
  info->built = "g++ " __VERSION__;
  if (device != 0) {
    Fail(HET_DEV_NO_DEVICE, "there is no device " + std::to_string(device) + ": the host is device 0");
  }
  std::snprintf(info->name, sizeof(info->name), "the host");
  info->multiprocessors = static_cast<int>(std::thread::hardware_concurrency());
  info->memory_bytes = HostArenaBytes();
  info->free_bytes = FreeBytes();
}

void Select(int /*device*/, const char* /*what*/) {}
void LoadCode() {}
OfThread Current() { return {}; }
void Restore(const OfThread& /*was*/) {}
void CheckStream(int /*device*/, HetDevStream /*stream*/) {}
size_t FreeBytes() { return HostArenaFree(); }

void* Allocate(size_t bytes) { return HostArenaTake(bytes); }
void Free(void* memory) { HostArenaGive(memory); }
void* AllocateLocked(size_t bytes) { return std::malloc(bytes); }
void FreeLocked(void* memory) { std::free(memory); }

void Copy(void* to, const void* from, size_t bytes, Direction direction, HetDevStream /*stream*/) {
  if (direction != Direction::kOut) to = ReadableAddress(to);
  if (direction != Direction::kIn) from = ReadableAddress(from);
  std::memcpy(to, from, bytes);
}

void Fill(void* to, unsigned char byte, size_t bytes, HetDevStream /*stream*/) {
  std::memset(ReadableAddress(to), byte, bytes);
}

void CheckLaunch(const char* /*what*/) {}
void Wait(HetDevStream /*stream*/, const char* /*what*/) {}
void WaitForDevice(const char* /*what*/) {}
void* CreateEvent() { return nullptr; }
void DestroyEvent(void* /*event*/) {}
void Record(void* /*event*/, HetDevStream /*stream*/) {}
void WaitForEvent(void* /*event*/, const char* /*what*/) {}

const void* ForeignAddress(const void* device) { return HostAliasOf(device); }

}  // namespace runtime
}  // namespace het::dev
