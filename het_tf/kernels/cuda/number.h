// 0, 1, 2, ... in device memory, to be sorted along with keys.
#pragma once

#include "het_tf/kernels/cuda/tile.h"

namespace het::dev {

struct NumberKernel {
  Dev<uint32_t> numbers;

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t i) const {
    tile.Once([&] { static_cast<uint32_t*>(numbers)[i] = static_cast<uint32_t>(i); });
  }
};

inline Dev<uint32_t> Numbers(Context& context, uint64_t n) {
  const Dev<uint32_t> numbers = context.Scratch<uint32_t>(n);
  Launch<4>(context, "number", n, NumberKernel{numbers});
  return numbers;
}

}  // namespace het::dev
