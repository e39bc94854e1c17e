// sort.h on a GPU.
#include <cub/device/device_radix_sort.cuh>
#include <string>

#include "het_tf/kernels/cuda/sort.h"

namespace het::dev {
namespace {

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();
  // CUB's code is loaded at its first use. No row has changed yet (sort.h).
  if (error == cudaErrorMemoryAllocation) {
    Fail(HET_DEV_OUT_OF_MEMORY, std::string(what) + ": there is no memory on the GPU for its code");
  }
  Fail(HET_DEV_FAILED, std::string(what) + ": " + cudaGetErrorString(error));
}

// CUB's index type is that of the number of items: 32 bits take less memory and time.
uint32_t Items(uint64_t n) {
  if (n > 0xffffffff) Fail(HET_DEV_INVALID, "a list of " + std::to_string(n) + " rows has 2^32 or more");
  return static_cast<uint32_t>(n);
}

}  // namespace

Sorted SortPairs(Context& context, Dev<const uint64_t> keys, Dev<const uint32_t> values, uint64_t n,
                 int bits) {
  const uint32_t items = Items(n);
  const Sorted to = {context.Scratch<uint64_t>(n), context.Scratch<uint32_t>(n)};
  const cudaStream_t stream = static_cast<cudaStream_t>(context.stream());
  const auto sort = [&](void* temporary, size_t* bytes) {
    Check(cub::DeviceRadixSort::SortPairs(temporary, *bytes, keys.raw(), to.keys.raw(), values.raw(),
                                          to.values.raw(), items, 0, bits, stream),
          "radix sort");
  };
  size_t bytes = 0;
  sort(nullptr, &bytes);
  const Dev<uint8_t> temporary = context.Scratch<uint8_t>(bytes);
  if (n > 0) sort(temporary.raw(), &bytes);
  return to;
}

}  // namespace het::dev
