// Asking the kernel for 2 MB pages.
//
// Rows are read at random from gigabytes: with 4 KB pages nearly every row costs a walk of the page tables
// besides its cache misses, inside a virtual machine two nested ones. `core_step_bench
// --benchmark_filter=large` measures it.
#pragma once

#include <cstddef>

namespace het {

// Call before the memory is touched for the first time. Advice only: nothing happens where the system has no
// such pages, forbids them (Redis does so in its process), or where the range is too small to hold one.
void AdviseHugePages(void* memory, size_t bytes);

}  // namespace het
