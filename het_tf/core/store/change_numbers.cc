#include "het_tf/core/store/change_numbers.h"

#include <algorithm>

namespace het {
namespace {

// Tells changed rows by the low bits of their numbers: 32 bits and no branch, so that compilers make SIMD of
// it.
class ChangedAfter {
 public:
  // `since` < `now`.
  ChangedAfter(uint64_t since, uint64_t now)
      : now_(static_cast<uint32_t>(now)),
        most_ago_(static_cast<uint32_t>(std::min<uint64_t>(now - since - 1, UINT32_MAX))) {}
  // Whether the largest number up to `now` with these low bits is after `since`.
  bool operator()(uint32_t low_bits) const { return now_ - low_bits <= most_ago_; }

 private:
  const uint32_t now_;
  const uint32_t most_ago_;
};

}  // namespace

uint32_t ChangeNumbers::Pick(uint32_t row, uint32_t end, uint64_t since, uint64_t now, size_t most,
                             Vector<uint32_t>* picked) const {
  picked->clear();
  if (since >= now) return end;
  const ChangedAfter changed(since, now);
  picked->resize(most);
  uint32_t* const out = picked->data();
  size_t count = 0;
  while (row < end && count < most) {
    const Block& block = blocks_.Of(row);
    const uint32_t block_end = std::min(end, (row / kBlockRows + 1) * kBlockRows);
    if (block.newest <= since) {
      row = block_end;
      continue;
    }
    for (; row < block_end && count < most; ++row) {
      out[count] = row;
      count += changed(block.numbers[row % kBlockRows]) ? 1 : 0;
    }
  }
  picked->resize(count);
  return row;
}

bool ChangeNumbers::MayHaveChanged(uint32_t row, uint64_t since, uint64_t now) const {
  return since < now && ChangedAfter(since, now)(blocks_.Of(row).numbers[row % kBlockRows]);
}

uint64_t ChangeNumbers::CountChanged(uint32_t end, uint64_t since, uint64_t now) const {
  if (since >= now) return 0;
  const ChangedAfter changed(since, now);
  uint64_t count = 0;
  for (uint32_t first = 0; first < end; first += std::min(kBlockRows, end - first)) {
    const Block& block = blocks_.Of(first);
    if (block.newest <= since) continue;
    const uint32_t rows = std::min(kBlockRows, end - first);
    uint32_t of_block = 0;
    for (uint32_t i = 0; i < rows; ++i) of_block += changed(block.numbers[i]) ? 1 : 0;
    count += of_block;
  }
  return count;
}

}  // namespace het
