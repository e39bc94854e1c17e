// All memory that grows with the data is allocated through one hook.
//
// Why: a Redis server must see the memory of a module's tables (`maxmemory` counts only RedisModule_Alloc),
// and tests must be able to exhaust memory at any byte.
//
// Use `Vector<T>` for arrays that grow with rows or ids. Exhaustion throws std::bad_alloc; every function of
// the core that can meet it documents the state of its object then.
#pragma once

#include <cstddef>
#include <new>
#include <utility>
#include <vector>

namespace het {

struct AllocHooks {
  void* (*allocate)(size_t bytes);  // aligned as by malloc; null when memory is exhausted
  void (*release)(void* pointer);
};

// Replaces malloc and free. Call once, before the core's first allocation.
void SetAllocHooks(AllocHooks hooks);

// Allocate() fails if more than `bytes` would be held. The default is no limit.
void SetAllocLimit(size_t bytes);

// Returns the bytes held through Allocate().
size_t AllocatedBytes();

// `alignment` is a power of two. Throws std::bad_alloc.
void* Allocate(size_t bytes, size_t alignment);
// `bytes` and `alignment` must equal Allocate's.
void Release(void* pointer, size_t bytes, size_t alignment) noexcept;

// The same for long-lived memory, aligned to a cache line. Without hooks, large blocks are mapped from the
// kernel: they return to it at once, and can use 2 MB pages. (malloc would keep freed memory: after a clear,
// a table would take as much again.)
void* AllocateBlock(size_t bytes);
void ReleaseBlock(void* pointer, size_t bytes) noexcept;

template <typename T>
struct Allocator {
  using value_type = T;
  Allocator() = default;
  template <typename U>
  Allocator(const Allocator<U>&) {}  // NOLINT: rebinding
  T* allocate(size_t n) { return static_cast<T*>(Allocate(n * sizeof(T), alignof(T))); }
  void deallocate(T* p, size_t n) noexcept { Release(p, n * sizeof(T), alignof(T)); }
  friend bool operator==(const Allocator&, const Allocator&) { return true; }
  friend bool operator!=(const Allocator&, const Allocator&) { return false; }
};

template <typename T>
using Vector = std::vector<T, Allocator<T>>;

// resize(n) leaves new elements uninitialised, for callers that write them next. resize(n, value) is as
// usual.
template <typename T>
struct UnwrittenAllocator : Allocator<T> {
  template <typename U>
  struct rebind {
    using other = UnwrittenAllocator<U>;
  };
  UnwrittenAllocator() = default;
  template <typename U>
  UnwrittenAllocator(const UnwrittenAllocator<U>&) {}  // NOLINT: rebinding
  template <typename U, typename... Args>
  void construct(U* p, Args&&... args) {
    if constexpr (sizeof...(Args) == 0) {
      ::new (static_cast<void*>(p)) U;
    } else {
      ::new (static_cast<void*>(p)) U(std::forward<Args>(args)...);
    }
  }
};

}  // namespace het
