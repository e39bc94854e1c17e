// An object in memory that this process and those that it forks share.
#pragma once

#include <sys/mman.h>

#include <cstdlib>
#include <memory>
#include <new>

namespace het::testing {

template <typename T>
struct Unmap {
  void operator()(T* shared) const { munmap(shared, sizeof(T)); }
};
template <typename T>
using Shared = std::unique_ptr<T, Unmap<T>>;

template <typename T>
Shared<T> NewShared() {
  void* memory = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  return Shared<T>(new (memory) T());
}

}  // namespace het::testing
