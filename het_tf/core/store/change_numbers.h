// For each row of a shard, the number of the partition's change that touched it last (change_log.h).
//
// A row keeps the low 32 bits, a block of 256 rows its largest number. So a scan for rows that changed since
// some number reads 8 bytes for each block that did not change. When the low bits have wrapped, a row can
// look changed that is not; never the reverse.
//
// Memory: 4.1 bytes a row, and at most 1 kB a shard more. Not thread-safe; the shard's owner locks.
#pragma once

#include <cstdint>

#include "het_tf/core/store/row_blocks.h"

namespace het {

class ChangeNumbers {
 public:
  // Makes room for rows below `end`. Throws std::bad_alloc; what is there stays.
  void Reserve(uint32_t end) { blocks_.Reserve(end); }
  // There must be room. Numbers never fall.
  void Set(uint32_t row, uint64_t number) {
    Block& block = blocks_.Of(row);
    block.newest = number;
    block.numbers[row % kBlockRows] = static_cast<uint32_t>(number);
  }
  // Sets *picked to the rows from `row` on, below `end` and at most `most`, that may have changed after
  // `since`, where `now` is the partition's last change. Returns the row to go on with.
  uint32_t Pick(uint32_t row, uint32_t end, uint64_t since, uint64_t now, size_t most,
                Vector<uint32_t>* picked) const;
  // Returns how many rows below `end` it would pick.
  uint64_t CountChanged(uint32_t end, uint64_t since, uint64_t now) const;
  // Whether it would pick this one.
  bool MayHaveChanged(uint32_t row, uint64_t since, uint64_t now) const;
  // Call for a row that is removed, so that it is not counted.
  void Forget(uint32_t row) { blocks_.Of(row).numbers[row % kBlockRows] = 0; }
  void Clear() { blocks_.Clear(); }
  size_t bytes() const { return blocks_.bytes(); }

 private:
  struct Block {
    uint64_t newest = 0;
    uint32_t numbers[256] = {};
  };
  static constexpr uint32_t kBlockRows = RowBlocks<Block>::kRows;
  static_assert(sizeof(Block::numbers) == kBlockRows * sizeof(uint32_t));

  RowBlocks<Block> blocks_;
};

}  // namespace het
