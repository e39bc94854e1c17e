// 0, 1, 2, ... in device memory, to be sorted along with keys. They stay there from call to call.
#pragma once

#include <utility>

#include "het_tf/kernels/cuda/tile.h"

namespace het::dev {

struct NumberKernel {
  Dev<uint32_t> numbers;

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t item) const {
    tile.ForEach(32, [&](uint64_t i) {
      static_cast<uint32_t*>(numbers)[item * 32 + i] = static_cast<uint32_t>(item * 32 + i);
    });
  }
};

// At least n of them. Where they grow, the old ones are freed, for which CUDA waits for the device.
inline Dev<const uint32_t> Numbers(Context& context, uint64_t n) {
  Block& kept = context.numbers();
  if (kept.bytes() < n * sizeof(uint32_t)) {
    uint64_t room = 4096;
    while (room < n) room *= 2;
    Block larger = context.Allocate(room * sizeof(uint32_t), "numbers");
    Launch<32>(context, "number", room / 32, NumberKernel{larger.as<uint32_t>()});
    kept = std::move(larger);
  }
  return kept.as<const uint32_t>();
}

}  // namespace het::dev
