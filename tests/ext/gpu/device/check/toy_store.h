// The store behind a cache, for tests: rows with clocks. Values add up, as SGD's do; slots are random at
// every clock, since both libraries compute from any input.
//
// A worker may subscribe to a row, as in core/store/subscribers.h: once the row has moved past the bound, the
// next answer of its partition names it, which ends the subscription.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
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
  // Applies the worker's update: value += the update's; clock += ticks.
  void Push(int64_t key, const float* update, uint32_t ticks);
  // Applies another worker's update, with a random change of the value in *change (dim floats).
  void MergeOther(int64_t key, het::testing::Random* random, std::vector<float>* change);
  // Resets the row to the initial one, with a clock above all earlier ones.
  void Remove(int64_t key);

  // An answer has left the worker with the row at this base.
  void Subscribe(int64_t key, int64_t base);
  // Returns the subscribed rows for which in(key) holds and that are more than `bound` past their base, in
  // order, and ends their subscriptions.
  std::vector<int64_t> Name(int64_t bound, const std::function<bool(int64_t key)>& in);
  // The worker has evicted the row. Returns whether it was subscribed.
  bool Unsubscribe(int64_t key) { return subscribed_.erase(key) > 0; }
  // Ends the subscriptions of the keys for which in(key) holds.
  void Reset(const std::function<bool(int64_t key)>& in);

 private:
  void Merge(int64_t key, const float* update, uint32_t ticks);
  Row& Find(int64_t key);
  float Draw(het::testing::Random* random, int64_t most) const;
  void DrawSlots(int64_t key, Row* row) const;

  HetDevTableConfig config_;
  uint64_t seed_;
  bool whole_;
  std::unordered_map<int64_t, Row> rows_;
  std::map<int64_t, int64_t> subscribed_;  // the base of each
};

}  // namespace het::device_check
