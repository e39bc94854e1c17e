// All memory that grows with the data goes through one hook.
//
// Why: inside a Redis module the server must see what the tables take (its `maxmemory` knows only memory that
// was taken through RedisModule_Alloc), and tests must be able to say "memory ends here" at any byte.
//
// Use `Vector<T>` for arrays that grow with rows or ids. Running out throws std::bad_alloc; every function
// of the core that can meet it says in what state it leaves its object.
#pragma once

#include <cstddef>
#include <new>
#include <utility>
#include <vector>

namespace het {

struct AllocHooks {
  void* (*allocate)(size_t bytes);  // aligned as malloc does; null when memory is exhausted
  void (*release)(void* pointer);
};

// Replaces malloc and free. Call before the first allocation of the core, once.
void SetAllocHooks(AllocHooks hooks);

// Allocate() fails as soon as more than `bytes` would be held. The default is no limit.
void SetAllocLimit(size_t bytes);

// Bytes held now through Allocate().
size_t AllocatedBytes();

// `alignment` is a power of two. Throws std::bad_alloc.
void* Allocate(size_t bytes, size_t alignment);
// `bytes` and `alignment` as they were given to Allocate.
void Release(void* pointer, size_t bytes, size_t alignment) noexcept;

// The same for memory that is held long, at the alignment of a cache line. Where malloc is in use, large
// blocks are the kernel's own: they go back to it at once, and can be of 2 MB pages. (malloc keeps what was
// freed, and what a table gives back when it is cleared is as much again as the next one takes.)
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

// Elements that are made without a value have none: resize(n) leaves what it adds unwritten, for a caller
// that writes it next. resize(n, value) is as everywhere.
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
