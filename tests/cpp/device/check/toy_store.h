// The store behind a cache, for tests: rows with clocks, updates merged by the rules of core/row/optimizer.h,
// which are written here a second time, as plainly as can be.
#ifndef HET_TESTS_CPP_DEVICE_CHECK_TOY_STORE_H_
#define HET_TESTS_CPP_DEVICE_CHECK_TOY_STORE_H_

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
  // row <- U(row); clock += ticks.
  void Merge(int64_t key, const float* update, uint32_t ticks);
  // An update of another worker. Its value's change is drawn into *change (dim floats) where that is not
  // null.
  void MergeOther(int64_t key, het::testing::Random* random, std::vector<float>* change);
  // The row is the initial one again, with a clock above all that were seen.
  void Remove(int64_t key);

 private:
  enum class Rule { kAdd, kEma, kLast };
  struct Part {
    uint32_t begin, n;
    Rule rule;
    float beta;
    float initial;
  };
  Row& Find(int64_t key);
  void DeriveValue(Row* row) const;

  HetDevTableConfig config_;
  uint64_t seed_;
  bool whole_;
  std::vector<Part> slots_;
  std::unordered_map<int64_t, Row> rows_;
};

}  // namespace het::device_check

#endif  // HET_TESTS_CPP_DEVICE_CHECK_TOY_STORE_H_
