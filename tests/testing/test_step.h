// One step of a worker: the keys of some tables, sorted as a client needs them, without a batch plan.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "het_tf/core/client/client.h"

namespace het::testing {

using TableKey = std::pair<uint64_t, Key>;

// One lookup, and an optional gradient.
class TestStep {
 public:
  struct Part {
    uint64_t table;
    uint32_t partition;
    uint32_t dim;
    Vector<Key> keys;
    Vector<uint64_t> hashes;
    Vector<uint32_t> rows;
    Vector<const float*> values;
    Vector<float> sums;
    Vector<uint8_t> touched;
  };

  // Keeps the keys in order, each once: batch_plan_test covers duplicates.
  void Add(const TableSchema& schema, const PartitionId& store, const std::vector<Key>& keys);
  // In order of partition, then table.
  std::map<std::pair<uint32_t, uint64_t>, Part>& parts() { return parts_; }
  const std::map<std::pair<uint32_t, uint64_t>, Part>& parts() const { return parts_; }

  // Calls fn(key, the sum of its gradients, whether it has one) for each key.
  template <typename Fn>
  void ForEachSum(Fn fn) {
    for (auto& [where, p] : parts_) {
      for (size_t u = 0; u < p.keys.size(); ++u) {
        fn(TableKey(p.table, p.keys[u]), Span<float>(p.sums.data() + u * p.dim, p.dim), p.touched[u] != 0);
      }
    }
  }

  CachedRead* MakeRead();
  CachedWrite* MakeWrite(float learning_rate);
  const float* Value(uint64_t table, Key key);

  uint64_t token = 0;
  // The state at the begin of a read that other calls may overtake: it need not see later changes.
  struct Begin {
    int64_t server;                  // the store's clock
    std::vector<float> row;          // and the store's row
    std::vector<int64_t> issued;     // ticks of each worker
    std::vector<int64_t> held_back;  // and how many of them it may have held back
    uint64_t restarts = 0;           // number of partitions' restarts
    uint64_t changes = 0;            // number of operators' changes
  };
  std::map<TableKey, Begin> begin;
  uint64_t changes = 0;  // number of operators' changes when its read began

 private:
  std::map<std::pair<uint32_t, uint64_t>, Part> parts_;
  std::set<TableKey> seen_;
  CachedRead read_;
  CachedWrite write_;
};

}  // namespace het::testing
