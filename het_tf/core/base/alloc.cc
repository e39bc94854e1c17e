#include "het_tf/core/base/alloc.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>

// AddressSanitizer must see malloc's blocks.
#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__)
#define HET_OWN_MAPPINGS
#include <sys/mman.h>
#endif

namespace het {
namespace {

AllocHooks g_hooks{&std::malloc, &std::free};
std::atomic<size_t> g_limit{SIZE_MAX};
std::atomic<size_t> g_allocated{0};

constexpr size_t kMallocAlignment = alignof(std::max_align_t);

// A block aligned beyond malloc's promise is cut out of a larger one; malloc's pointer is in the word before.
size_t Overhead(size_t alignment) { return alignment <= kMallocAlignment ? 0 : alignment + sizeof(void*); }

}  // namespace

void SetAllocHooks(AllocHooks hooks) { g_hooks = hooks; }
void SetAllocLimit(size_t bytes) { g_limit.store(bytes, std::memory_order_relaxed); }
size_t AllocatedBytes() { return g_allocated.load(std::memory_order_relaxed); }

void* Allocate(size_t bytes, size_t alignment) {
  const size_t total = bytes + Overhead(alignment);
  if (total < bytes) throw std::bad_alloc();
  const size_t held = g_allocated.fetch_add(total, std::memory_order_relaxed) + total;
  void* block = held > g_limit.load(std::memory_order_relaxed) ? nullptr : g_hooks.allocate(total);
  if (block == nullptr) {
    g_allocated.fetch_sub(total, std::memory_order_relaxed);
    throw std::bad_alloc();
  }
  if (Overhead(alignment) == 0) return block;
  const uintptr_t first = reinterpret_cast<uintptr_t>(block) + sizeof(void*);
  const uintptr_t aligned = (first + alignment - 1) & ~(static_cast<uintptr_t>(alignment) - 1);
  reinterpret_cast<void**>(aligned)[-1] = block;
  return reinterpret_cast<void*>(aligned);
}

void Release(void* pointer, size_t bytes, size_t alignment) noexcept {
  if (pointer == nullptr) return;
  const size_t overhead = Overhead(alignment);
  g_hooks.release(overhead == 0 ? pointer : static_cast<void**>(pointer)[-1]);
  g_allocated.fetch_sub(bytes + overhead, std::memory_order_relaxed);
}

namespace {

constexpr size_t kLineBytes = 64;

}  // namespace

#ifdef HET_OWN_MAPPINGS

namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kHugePageBytes = size_t{2} << 20;
// malloc's own initial limit, before it adapts.
constexpr size_t kOwnMappingBytes = size_t{128} << 10;

bool IsOwnMapping(size_t bytes) { return bytes >= kOwnMappingBytes && g_hooks.allocate == &std::malloc; }

size_t WholePages(size_t bytes) { return (bytes + kPageBytes - 1) & ~(kPageBytes - 1); }

}  // namespace

void* AllocateBlock(size_t bytes) {
  if (!IsOwnMapping(bytes)) return Allocate(bytes, kLineBytes);
  const size_t pages = WholePages(bytes);
  if (pages < bytes) throw std::bad_alloc();
  const size_t alignment = pages >= kHugePageBytes ? kHugePageBytes : kPageBytes;
  const size_t held = g_allocated.fetch_add(pages, std::memory_order_relaxed) + pages;
  void* mapped = MAP_FAILED;
  if (held <= g_limit.load(std::memory_order_relaxed)) {
    mapped = ::mmap(nullptr, pages + alignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  if (mapped == MAP_FAILED) {
    g_allocated.fetch_sub(pages, std::memory_order_relaxed);
    throw std::bad_alloc();
  }
  // A large block begins where a large page can; the bytes before and behind it are unmapped.
  const auto first = reinterpret_cast<uintptr_t>(mapped);
  const uintptr_t begin = (first + alignment - 1) & ~(alignment - 1);
  if (begin > first) ::munmap(mapped, begin - first);
  const uintptr_t end = first + pages + alignment;
  if (end > begin + pages) ::munmap(reinterpret_cast<void*>(begin + pages), end - begin - pages);
  return reinterpret_cast<void*>(begin);
}

void ReleaseBlock(void* pointer, size_t bytes) noexcept {
  if (pointer == nullptr) return;
  if (!IsOwnMapping(bytes)) return Release(pointer, bytes, kLineBytes);
  ::munmap(pointer, WholePages(bytes));
  g_allocated.fetch_sub(WholePages(bytes), std::memory_order_relaxed);
}

#else

void* AllocateBlock(size_t bytes) { return Allocate(bytes, kLineBytes); }
void ReleaseBlock(void* pointer, size_t bytes) noexcept { Release(pointer, bytes, kLineBytes); }

#endif

}  // namespace het
