// Facts about the rows of a shard, beside their content: blocks of 256 rows, which stay where they are.
//
// Memory: of a block for each 256 rows, and a pointer. Not thread-safe; the shard's owner locks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <new>

#include "het_tf/core/base/alloc.h"

namespace het {

template <typename Block>
class RowBlocks {
 public:
  static constexpr uint32_t kRows = 256;  // of a block

  RowBlocks() = default;
  ~RowBlocks() { Clear(); }
  RowBlocks(const RowBlocks&) = delete;
  RowBlocks& operator=(const RowBlocks&) = delete;

  // Makes room for rows below `end`; new blocks are value-initialised. Throws std::bad_alloc; what is there
  // stays.
  void Reserve(uint32_t end) {
    while (size_t{kRows} * blocks_.size() < end) {
      if (blocks_.size() == blocks_.capacity()) blocks_.reserve(std::max<size_t>(4, 2 * blocks_.size()));
      blocks_.push_back(new (Allocate(sizeof(Block), alignof(Block))) Block());
    }
  }
  // The block of a row for which there is room.
  Block& Of(uint32_t row) { return *blocks_[row / kRows]; }
  const Block& Of(uint32_t row) const { return *blocks_[row / kRows]; }
  void Clear() {
    for (Block* block : blocks_) Release(block, sizeof(Block), alignof(Block));
    Vector<Block*>().swap(blocks_);
  }
  size_t bytes() const { return blocks_.size() * sizeof(Block) + blocks_.capacity() * sizeof(Block*); }

 private:
  Vector<Block*> blocks_;
};

}  // namespace het
