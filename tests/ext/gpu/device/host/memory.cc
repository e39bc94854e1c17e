#include "tests/ext/gpu/device/host/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace het::dev {

HostArena host_arena;

namespace {

constexpr size_t kPage = 4096;
constexpr uintptr_t kArenaBytes = uintptr_t{1} << 36;  // of addresses; memory is taken as it is used

size_t Pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Pieces of whole pages, each with a page behind it that belongs to nobody.
class HostMemory {
 public:
  static HostMemory& Get() {
    static HostMemory* memory = new HostMemory;  // never freed: the library may be used until the very end
    return *memory;
  }

  void* Take(size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (host_arena.bytes == 0 || bytes > limit_ - taken_) return nullptr;
    const size_t size = Pages(bytes) + kPage;
    for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
      if (hole->second < size) continue;
      const uintptr_t at = hole->first;
      const size_t rest = hole->second - size;
      holes_.erase(hole);
      if (rest > 0) holes_.emplace(at + size, rest);
      void* alias = reinterpret_cast<void*>(at + host_arena.distance);
      if (mprotect(alias, Pages(bytes), PROT_READ | PROT_WRITE) != 0) {
        GiveBack(at, size);
        return nullptr;
      }
      std::memset(alias, 0xcd, bytes);  // what was never written is to be seen
#if defined(__SANITIZE_ADDRESS__)
      ASAN_POISON_MEMORY_REGION(static_cast<char*>(alias) + bytes, Pages(bytes) - bytes);
#endif
      pieces_.emplace(at, bytes);
      taken_ += bytes;
      return reinterpret_cast<void*>(at);
    }
    return nullptr;
  }

  void Give(void* memory) {
    if (memory == nullptr) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto piece = pieces_.find(reinterpret_cast<uintptr_t>(memory));
    if (piece == pieces_.end()) return;
    const auto [at, bytes] = *piece;
    pieces_.erase(piece);
    taken_ -= bytes;
    void* alias = reinterpret_cast<void*>(at + host_arena.distance);
#if defined(__SANITIZE_ADDRESS__)
    ASAN_UNPOISON_MEMORY_REGION(alias, Pages(bytes));
#endif
    madvise(alias, Pages(bytes), MADV_DONTNEED);
    mprotect(alias, Pages(bytes), PROT_NONE);  // a kernel that uses it later crashes
    GiveBack(at, Pages(bytes) + kPage);
  }

  size_t limit() const { return limit_; }
  size_t free() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return limit_ - taken_;
  }

  void Alias(uintptr_t base, size_t bytes, uintptr_t alias) {
    const std::lock_guard<std::mutex> lock(mutex_);
    foreign_[base] = {bytes, alias};
  }
  void Unalias(uintptr_t base) {
    const std::lock_guard<std::mutex> lock(mutex_);
    foreign_.erase(base);
  }
  uintptr_t Find(uintptr_t at) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto range = foreign_.upper_bound(at);
    if (range == foreign_.begin()) return at;
    --range;
    const uintptr_t offset = at - range->first;
    return offset < range->second.bytes ? range->second.alias + offset : at;
  }

 private:
  struct Foreign {
    size_t bytes;
    uintptr_t alias;
  };

  HostMemory() {
    void* both =
        mmap(nullptr, 2 * kArenaBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (both == MAP_FAILED) return;
    host_arena.begin = reinterpret_cast<uintptr_t>(both);
    host_arena.distance = kArenaBytes;
    host_arena.bytes = kArenaBytes;
    holes_.emplace(host_arena.begin, kArenaBytes);
    const size_t physical =
        static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
    limit_ = std::min<size_t>(physical / 2, kArenaBytes / 2);
  }

  void GiveBack(uintptr_t at, size_t size) {
    auto next = holes_.lower_bound(at);
    if (next != holes_.end() && at + size == next->first) {
      size += next->second;
      next = holes_.erase(next);
    }
    if (next != holes_.begin()) {
      auto before = std::prev(next);
      if (before->first + before->second == at) {
        before->second += size;
        return;
      }
    }
    holes_.emplace(at, size);
  }

  std::mutex mutex_;
  std::map<uintptr_t, size_t> holes_;
  std::map<uintptr_t, size_t> pieces_;
  std::map<uintptr_t, Foreign> foreign_;
  size_t limit_ = 0;
  size_t taken_ = 0;
};

}  // namespace

void* HostArenaTake(size_t bytes) { return HostMemory::Get().Take(bytes); }
void HostArenaGive(void* memory) { HostMemory::Get().Give(memory); }
size_t HostArenaBytes() { return HostMemory::Get().limit(); }
size_t HostArenaFree() { return HostMemory::Get().free(); }
const void* HostAliasOf(const void* device) {
  return reinterpret_cast<const void*>(HostMemory::Get().Find(reinterpret_cast<uintptr_t>(device)));
}

}  // namespace het::dev

void HetDevHostAlias(void* device_base, size_t bytes, void* alias) {
  het::dev::HostMemory::Get().Alias(reinterpret_cast<uintptr_t>(device_base), bytes,
                                    reinterpret_cast<uintptr_t>(alias));
}
void HetDevHostUnalias(void* device_base) {
  het::dev::HostMemory::Get().Unalias(reinterpret_cast<uintptr_t>(device_base));
}
