#include "het_tf/core/alloc.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>

namespace het {
namespace {

AllocHooks g_hooks{&std::malloc, &std::free};
std::atomic<size_t> g_limit{SIZE_MAX};
std::atomic<size_t> g_allocated{0};

constexpr size_t kMallocAlignment = alignof(std::max_align_t);

// A block aligned beyond malloc's own promise is cut out of a larger one; the pointer that malloc gave stands
// in the word before it.
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

}  // namespace het
