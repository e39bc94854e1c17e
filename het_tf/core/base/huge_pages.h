// Asking the kernel for 2 MB pages.
//
// Rows are read at random from gigabytes. With 4 KB pages nearly every row costs a page-table walk (in a
// virtual machine a nested one) and cache misses. `core_step_bench --benchmark_filter=large` measures it.
#pragma once

#include <cstddef>

namespace het {

// Call before the memory is first touched. Only a hint: without effect if the system has no such pages or
// forbids them (as Redis does in its process), or if the range is too small for one.
void AdviseHugePages(void* memory, size_t bytes);

}  // namespace het
