#include "het_tf/core/store/change_numbers.h"

#include <algorithm>

namespace het {
namespace {

bool IsChanged(uint32_t low_bits, uint64_t since, uint64_t now) {
  // The largest number up to `now` with these low bits.
  const uint32_t ago = static_cast<uint32_t>(now) - low_bits;
  return now < ago || now - ago > since;
}

}  // namespace

uint32_t ChangeNumbers::NextChanged(uint32_t row, uint32_t end, uint64_t since, uint64_t now) const {
  while (row < end) {
    const Block& block = blocks_.Of(row);
    const uint32_t block_end = std::min(end, (row / kBlockRows + 1) * kBlockRows);
    if (block.newest > since) {
      for (; row < block_end; ++row) {
        if (IsChanged(block.numbers[row % kBlockRows], since, now)) return row;
      }
    }
    row = block_end;
  }
  return end;
}

uint64_t ChangeNumbers::CountChanged(uint32_t end, uint64_t since, uint64_t now) const {
  uint64_t count = 0;
  for (uint32_t first = 0; first < end; first += std::min(kBlockRows, end - first)) {
    const Block& block = blocks_.Of(first);
    if (block.newest <= since) continue;
    const uint32_t rows = std::min(kBlockRows, end - first);
    for (uint32_t i = 0; i < rows; ++i) count += IsChanged(block.numbers[i], since, now) ? 1 : 0;
  }
  return count;
}

}  // namespace het
