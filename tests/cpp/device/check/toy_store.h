// The store behind a cache, for tests: rows with clocks. Values add up, as SGD's do; slots are drawn anew at
// every clock, for both libraries compute from what they are given, whatever it is.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "het_tf/core/device/abi.h"
#include "tests/cpp/testing/random.h"

namespace het::device_check {

// Floats of a row of this table, slots included.
uint32_t RowFloats(int optimizer, uint32_t dim);

class ToyStore {
 public:
  struct Row {
    std::vector<float> floats;
    int64_t clock = 0;
  };

  // `whole`: values are integers.
  ToyStore(const HetDevTableConfig& config, uint64_t seed, bool whole);

  const Row& Read(int64_t key) { return Find(key); }
  // The row that nobody has written.
  Row Initial(int64_t key) const;
  // value += that of the update; clock += ticks.
  void Merge(int64_t key, const float* update, uint32_t ticks);
  // An update of another worker. Its value's change is drawn into *change (dim floats).
  void MergeOther(int64_t key, het::testing::Random* random, std::vector<float>* change);
  // The row is the initial one again, with a clock above all that were seen.
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
