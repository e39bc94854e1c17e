// Which rows of a shard have moved far, for readers that want those before the others ("send on delta").
//
// Each update of a row adds the length of its step, |new value - old value| (L2), to the row's sum. When the
// sum exceeds a fraction of the length of the present value, the change counts as large: the row gets its
// number, and the sum goes to 0. So a reader that has all rows of which a change up to some number was large
// lacks, of any row of then, steps that sum up to no more than this fraction of its length.
//
// The first change of a new row is large, and so is an assigned or loaded row. The sums do not depend on
// readers: a row that a reader got for another reason keeps its sum, and may come again a little early.
//
// Memory: 8.2 bytes a row. Not thread-safe; the shard's owner locks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>

#include "het_tf/core/store/change_numbers.h"

namespace het {

class LargeChanges {
 public:
  // `dim`: floats of a value.
  explicit LargeChanges(size_t dim) : before_(dim) {}

  void set_fraction(double fraction) { fraction_ = fraction; }
  // Makes room for rows below `end`. Throws std::bad_alloc; what is there stays.
  void Reserve(uint32_t end) {
    numbers_.Reserve(end);
    sums_.Reserve(end);
  }

  // Call both around an update of a row, with its value.
  void Before(const float* value);
  void After(uint32_t row, const float* value, uint64_t number);
  // The row has got another content, however far from the one before.
  void Set(uint32_t row, uint64_t number) {
    numbers_.Set(row, number);
    Sum(row) = 0;
  }
  // Call for a row that is removed: its next content is new.
  void Forget(uint32_t row) {
    numbers_.Forget(row);
    Sum(row) = kNew;
  }
  void Clear() {
    numbers_.Clear();
    sums_.Clear();
  }

  // The number of each row's last large change.
  const ChangeNumbers& numbers() const { return numbers_; }
  size_t bytes() const { return numbers_.bytes() + sums_.bytes() + before_.size() * sizeof(float); }

 private:
  static constexpr float kNew = std::numeric_limits<float>::infinity();
  struct Block {
    Block() { std::fill(std::begin(sums), std::end(sums), kNew); }
    float sums[256];
  };
  static_assert(sizeof(Block) == RowBlocks<Block>::kRows * sizeof(float));

  float& Sum(uint32_t row) { return sums_.Of(row).sums[row % RowBlocks<Block>::kRows]; }

  double fraction_ = 0;
  ChangeNumbers numbers_;
  RowBlocks<Block> sums_;
  Vector<float> before_;
};

}  // namespace het
