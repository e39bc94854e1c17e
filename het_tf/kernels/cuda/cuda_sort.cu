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

void SortPairs(Context& context, Dev<uint64_t>* keys, Dev<uint32_t>* values, uint64_t n, int bits) {
  if (n < 2) return;
  const uint32_t items = Items(n);
  cub::DoubleBuffer<uint64_t> both_keys(keys->raw(), context.Scratch<uint64_t>(n).raw());
  cub::DoubleBuffer<uint32_t> both_values(values->raw(), context.Scratch<uint32_t>(n).raw());
  const cudaStream_t stream = static_cast<cudaStream_t>(context.stream());
  size_t bytes = 0;
  Check(cub::DeviceRadixSort::SortPairs(nullptr, bytes, both_keys, both_values, items, 0, bits, stream),
        "radix sort");
  const Dev<uint8_t> temporary = context.Scratch<uint8_t>(bytes);
  Check(
      cub::DeviceRadixSort::SortPairs(temporary.raw(), bytes, both_keys, both_values, items, 0, bits, stream),
      "radix sort");
  *keys = Dev<uint64_t>(both_keys.Current());
  *values = Dev<uint32_t>(both_values.Current());
}

}  // namespace het::dev
