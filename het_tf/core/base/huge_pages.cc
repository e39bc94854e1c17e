#include "het_tf/core/base/huge_pages.h"

#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace het {

void AdviseHugePages(void* memory, size_t bytes) {
#if defined(__linux__)
  constexpr uintptr_t kPage = 4096;
  constexpr size_t kWorthwhile = size_t{1} << 20;
  if (bytes < kWorthwhile) return;
  // Edges may share pages with foreign memory: advise only whole pages.
  const uintptr_t first = (reinterpret_cast<uintptr_t>(memory) + kPage - 1) & ~(kPage - 1);
  const uintptr_t end = (reinterpret_cast<uintptr_t>(memory) + bytes) & ~(kPage - 1);
  if (first < end) (void)madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
#else
  (void)memory;
  (void)bytes;
#endif
}

}  // namespace het
