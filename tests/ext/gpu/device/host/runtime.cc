// runtime.h where the host plays the device; streams.h has its streams.
#include "het_tf/kernels/cuda/runtime.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
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
void Free(void* memory) {
  streams::WaitForAll();
  HostArenaGive(memory);
}

namespace {

// Page-locked memory, which copies read and write when they are done. Copies from other host memory read it
// when they are asked for, and copies to it are done then.
struct Locked {
  static Locked& Get() {
    static Locked* const locked = new Locked;
    return *locked;
  }
  bool Has(const void* memory) {
    const std::lock_guard<std::mutex> lock(mutex);
    auto piece = pieces.upper_bound(static_cast<const char*>(memory));
    if (piece == pieces.begin()) return false;
    --piece;
    return static_cast<const char*>(memory) < piece->first + piece->second;
  }

  std::mutex mutex;
  std::map<const char*, size_t> pieces;  // with their bytes
};

}  // namespace

void* AllocateLocked(size_t bytes) {
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) return nullptr;
  std::memset(memory, 0xa5, bytes);  // what was never written is to be seen
  const std::lock_guard<std::mutex> lock(Locked::Get().mutex);
  Locked::Get().pieces[static_cast<const char*>(memory)] = bytes;
  return memory;
}
void FreeLocked(void* memory) {
  streams::WaitForAll();
  const std::lock_guard<std::mutex> lock(Locked::Get().mutex);
  Locked::Get().pieces.erase(static_cast<const char*>(memory));
  std::free(memory);
}

void Copy(void* to, const void* from, size_t bytes, Direction direction, HetDevStream stream) {
  if (direction != Direction::kOut) to = ReadableAddress(to);
  if (direction != Direction::kIn) from = ReadableAddress(from);
  if (direction == Direction::kIn && !Locked::Get().Has(from)) {
    const auto* const begin = static_cast<const char*>(from);
    const auto staged = std::make_shared<std::vector<char>>(begin, begin + bytes);
    streams::Put(stream, 1, [=] { std::memcpy(to, staged->data(), bytes); });
    return;
  }
  streams::Put(stream, 1, [=] { std::memcpy(to, from, bytes); });
  if (direction == Direction::kOut && !Locked::Get().Has(to)) streams::WaitFor(streams::Here(stream));
}

void Fill(void* to, unsigned char byte, size_t bytes, HetDevStream stream) {
  to = ReadableAddress(to);
  streams::Put(stream, 1, [=] { std::memset(to, byte, bytes); });
}

std::string SelectOrError(int /*device*/, HetDevStream /*stream*/) {
  return streams::IsBroken() ? "HetDevHostBreak: an illegal memory access" : "";
}
void CheckLaunch(const char* what) {
  if (!streams::TakeFailedLaunch()) return;
  Fail(HET_DEV_FAILED, std::string("launching kernel '") + what + "': HetDevHostFailLaunch");
}
void Wait(HetDevStream stream, const char* /*what*/) { streams::WaitFor(streams::Here(stream)); }
void WaitForDevice(const char* /*what*/) { streams::WaitForAll(); }
HetDevStream CreateStream() { return new char; }
void DestroyStream(HetDevStream stream) { delete static_cast<char*>(stream); }
void* CreateEvent() { return new streams::Point; }
void DestroyEvent(void* event) { delete static_cast<streams::Point*>(event); }
void Record(void* event, HetDevStream stream) {
  *static_cast<streams::Point*>(event) = streams::Here(stream);
}
void WaitForEvent(void* event, const char* /*what*/) {
  streams::WaitFor(*static_cast<streams::Point*>(event));
}
void WaitOnStream(HetDevStream stream, void* event) {
  streams::PutWait(stream, *static_cast<streams::Point*>(event));
}

bool OnDevice(const void* memory) {
  return ReadableAddress(memory) != memory || HostAliasOf(memory) != memory;
}
const void* ForeignAddress(const void* device) { return HostAliasOf(device); }

}  // namespace runtime
}  // namespace het::dev
