#include "tests/ext/gpu/device/host/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace het::dev {

HostArena host_arena;

namespace {

constexpr size_t kPage = 4096;
constexpr uintptr_t kArenaBytes = uintptr_t{1} << 36;  // of addresses; memory is taken as it is used

size_t Pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
void* Alias(uintptr_t at) { return reinterpret_cast<void*>(at + host_arena.distance); }

// Pieces of whole pages, in places of 2^k pages, each with a page behind it that belongs to nobody. A place
// that was given back is for the next piece of its size.
class HostMemory {
 public:
  static HostMemory& Get() {
    static HostMemory* memory = new HostMemory;  // never freed: the library may be used until the very end
    return *memory;
  }

  void* Take(size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (bytes > limit_ - taken_) return nullptr;
    const size_t size = PlaceFor(bytes);
    std::vector<uintptr_t>& free = free_[size];
    if (free.empty()) {
      if (size > host_arena.begin + host_arena.bytes - unused_) return nullptr;
      free.push_back(unused_);
      unused_ += size;
    }
    const uintptr_t at = free.back();
    if (mprotect(Alias(at), Pages(bytes), PROT_READ | PROT_WRITE) != 0) return nullptr;
    free.pop_back();
    std::memset(Alias(at), 0xcd, bytes);  // what was never written is to be seen
#if defined(__SANITIZE_ADDRESS__)
    ASAN_POISON_MEMORY_REGION(static_cast<char*>(Alias(at)) + bytes, Pages(bytes) - bytes);
#endif
    pieces_.emplace(at, bytes);
    taken_ += bytes;
    return reinterpret_cast<void*>(at);
  }

  void Give(void* memory) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto piece = pieces_.find(reinterpret_cast<uintptr_t>(memory));
    if (piece == pieces_.end()) return;
    const auto [at, bytes] = *piece;
    pieces_.erase(piece);
    taken_ -= bytes;
#if defined(__SANITIZE_ADDRESS__)
    ASAN_UNPOISON_MEMORY_REGION(Alias(at), Pages(bytes));
#endif
    madvise(Alias(at), Pages(bytes), MADV_DONTNEED);
    mprotect(Alias(at), Pages(bytes), PROT_NONE);  // a kernel that uses it later crashes
    free_[PlaceFor(bytes)].push_back(at);
  }

  size_t limit() const { return limit_; }
  size_t free() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return limit_ - taken_;
  }

 private:
  HostMemory() {
    void* both =
        mmap(nullptr, 2 * kArenaBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (both == MAP_FAILED) return;
    host_arena = {reinterpret_cast<uintptr_t>(both), kArenaBytes, kArenaBytes};
    unused_ = host_arena.begin;
    const size_t physical =
        static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
    limit_ = std::min<size_t>(physical / 2, kArenaBytes / 2);
  }

  static size_t PlaceFor(size_t bytes) {
    size_t size = kPage;
    while (size < bytes) size *= 2;
    return size + kPage;
  }

  std::mutex mutex_;
  std::map<size_t, std::vector<uintptr_t>> free_;  // places, by their size
  std::map<uintptr_t, size_t> pieces_;
  uintptr_t unused_ = 0;  // from here on
  size_t limit_ = 0;
  size_t taken_ = 0;
};

// Memory of somebody else's device, and where it is read and written.
struct {
  std::mutex mutex;
  HostArena range;
} foreign;

}  // namespace

void* HostArenaTake(size_t bytes) { return HostMemory::Get().Take(bytes); }
void HostArenaGive(void* memory) { HostMemory::Get().Give(memory); }
size_t HostArenaBytes() { return HostMemory::Get().limit(); }
size_t HostArenaFree() { return HostMemory::Get().free(); }
const void* HostAliasOf(const void* device) {
  const std::lock_guard<std::mutex> lock(foreign.mutex);
  return foreign.range.Readable(device);
}

}  // namespace het::dev

void HetDevHostAlias(void* device_base, size_t bytes, void* alias) {
  using het::dev::foreign;
  const std::lock_guard<std::mutex> lock(foreign.mutex);
  const auto begin = reinterpret_cast<uintptr_t>(device_base);
  foreign.range = {begin, bytes, reinterpret_cast<uintptr_t>(alias) - begin};
}
