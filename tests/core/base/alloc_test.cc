#include "het_tf/core/base/alloc.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace het {
namespace {

size_t g_allocations = 0;
size_t g_releases = 0;

TEST(Alloc, AlignsAndCounts) {
  const size_t before = AllocatedBytes();
  for (size_t alignment : {8, 16, 64, 4096}) {
    void* p = Allocate(100, alignment);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % alignment, 0u);
    EXPECT_GE(AllocatedBytes(), before + 100);
    Release(p, 100, alignment);
    EXPECT_EQ(AllocatedBytes(), before);
  }
  Release(nullptr, 0, 8);
}

TEST(Alloc, TheLimitThrowsAndHoldsNothing) {
  const size_t before = AllocatedBytes();
  SetAllocLimit(before + 1000);
  EXPECT_THROW(Allocate(2000, 8), std::bad_alloc);
  EXPECT_THROW(Allocate(SIZE_MAX, 64), std::bad_alloc);
  EXPECT_EQ(AllocatedBytes(), before);
  Release(Allocate(500, 8), 500, 8);
  SetAllocLimit(SIZE_MAX);
}

TEST(Alloc, BlocksOfAnySize) {
  const size_t before = AllocatedBytes();
  for (size_t bytes : {size_t{1}, size_t{5000}, size_t{200} << 10, size_t{3} << 20, (size_t{5} << 20) + 1}) {
    auto* block = static_cast<char*>(AllocateBlock(bytes));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 64, 0u) << bytes;
    EXPECT_GE(AllocatedBytes(), before + bytes);
    block[0] = block[bytes - 1] = 1;
    ReleaseBlock(block, bytes);
    EXPECT_EQ(AllocatedBytes(), before) << bytes;
    SetAllocLimit(before + bytes - 1);
    EXPECT_THROW(AllocateBlock(bytes), std::bad_alloc) << bytes;
    SetAllocLimit(SIZE_MAX);
    EXPECT_EQ(AllocatedBytes(), before) << bytes;
  }
  SetAllocLimit(before + 1000);
  EXPECT_THROW(AllocateBlock(SIZE_MAX - 100), std::bad_alloc);
  SetAllocLimit(SIZE_MAX);
  ReleaseBlock(nullptr, 5 << 20);
}

TEST(Alloc, VectorsGoThroughTheHook) {
  SetAllocHooks({[](size_t bytes) {
                   ++g_allocations;
                   return std::malloc(bytes);
                 },
                 [](void* p) {
                   ++g_releases;
                   std::free(p);
                 }});
  {
    Vector<int> v;
    v.resize(1000);
  }
  SetAllocHooks({&std::malloc, &std::free});
  EXPECT_EQ(g_allocations, 1u);
  EXPECT_EQ(g_releases, 1u);
}

}  // namespace
}  // namespace het
