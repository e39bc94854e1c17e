// The store behind a cache, for tests: rows with clocks. Values add up, as SGD's do; slots are random at
// every clock, since both libraries compute from any input.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "het_tf/ext/gpu/cc/abi.h"
#include "tests/testing/random.h"

namespace het::device_check {

// Floats in a row of this table, slots included.
uint32_t RowFloats(const HetDevTableConfig& config);

class ToyStore {
 public:
  struct Row {
    std::vector<float> floats;
    int64_t clock = 0;
  };

  // `whole`: values are integers.
  ToyStore(const HetDevTableConfig& config, uint64_t seed, bool whole);

  const Row& Read(int64_t key) { return Find(key); }
  // The row before any update.
  Row Initial(int64_t key) const;
  // value += the update's; clock += ticks.
  void Merge(int64_t key, const float* update, uint32_t ticks);
  // Applies another worker's update, with a random change of the value in *change (dim floats).
  void MergeOther(int64_t key, het::testing::Random* random, std::vector<float>* change);
  // Resets the row to the initial one, with a clock above all earlier ones.
  void Remove(int64_t key);

 private:
  Row& Find(int64_t key);
  float Draw(het::testing::Random* random, int64_t most) const;
  void DrawSlots(int64_t key, Row* row) const;

  HetDevTableConfig config_;
  uint64_t seed_;
  bool whole_;
  std::unordered_map<int64_t, Row> rows_;
};

}  // namespace het::device_check
