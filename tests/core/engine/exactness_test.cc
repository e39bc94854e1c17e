// N workers in lock-step at staleness 0 equal one process that trains on the union of their batches.
//
// The workers are engines with a cache each, and share one store, so a step passes through all parts except
// the network: batch plan, cache, frames, partitions. The one process is an engine with direct tables: it
// uses no cache, frame or merge.
//
// docs/protocol.md says what is equal, and how closely:
//   SGD          any ids, bit for bit on integers and 1e-6 on floats
//   optimizers   1e-6 if no two workers share an id
//   accumulate   plan/gradient_sums_test.cc, and with ranks tests/ext/workers/test_ranks.py
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/testing/optimizer_of.h"
#include "tests/testing/process.h"
#include "tests/testing/random.h"
#include "tests/testing/table_specs.h"

namespace het::testing::exactness_test {
namespace {

constexpr uint32_t kDim = Process::kDim;
constexpr size_t kBatch = 7;    // ids of a worker and step
constexpr int64_t kKeys = 41;   // ids are in [-kKeys, kKeys]
constexpr size_t kSmall = 4;    // lines of a cache that does not hold a batch
constexpr size_t kAmple = 500;  // lines of one that holds every row

struct Cell {
  uint32_t workers = 2;
  uint32_t shards = 1;
  Policy policy = Policy::kLru;
  size_t capacity = kAmple;
  std::string optimizer = "sgd";

  std::string ToString() const {
    return std::to_string(workers) + " workers, " + std::to_string(shards) + " shards, " +
           PolicyName(policy) + ", capacity " + std::to_string(capacity) + ", " + optimizer;
  }
};

// Calls fn(cell) for 2 and 4 workers x 1, 2, 3 and 16 shards x every policy x caches of both sizes.
template <typename Fn>
void ForEveryCell(const std::string& optimizer, Fn fn) {
  for (uint32_t workers : {2u, 4u}) {
    for (uint32_t shards : {1u, 2u, 3u, 16u}) {
      if (kSanitized && shards != 3) continue;
      for (const Policy policy : {Policy::kLru, Policy::kLfu}) {
        for (size_t capacity : {kSmall, kAmple}) {
          const Cell cell{workers, shards, policy, capacity, optimizer};
          SCOPED_TRACE(cell.ToString());
          fn(cell);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

// The workers of a cell, the one process, and the allowed difference.
class Race {
 public:
  enum Ids { kShared, kDisjoint };
  enum Data { kIntegers, kFloats };

  Race(const Cell& cell, Ids ids, Data data)
      : cell_(cell),
        ids_(ids),
        data_(data),
        service_(cell.shards, /*hash_seed=*/77),
        one_(Spec(cell, data)),
        random_(cell.workers * 1000 + cell.shards * 10 + cell.capacity) {
    CacheConfig cache;
    cache.capacity = cell.capacity;
    cache.policy = cell.policy;
    cache.pull_bound = 0;
    cache.push_bound = 0;
    cache.write_back_rows = 2;
    for (uint32_t w = 0; w < cell.workers; ++w) workers_.emplace_back(Spec(cell, data), &service_, cache);
  }

  // Every worker reads, then every worker writes.
  void Run() {
    for (uint64_t step = 0; step < Scaled(200); ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      std::vector<Batch> batches;
      Batch everything;
      for (uint32_t w = 0; w < cell_.workers; ++w) {
        batches.push_back(NewBatch(w));
        everything.Append(batches[w]);
      }
      const std::vector<float> expected = one_.Lookup(everything.ids);
      std::vector<float> found;
      for (uint32_t w = 0; w < cell_.workers; ++w) {
        const std::vector<float> rows = workers_[w].Lookup(batches[w].ids);
        found.insert(found.end(), rows.begin(), rows.end());
      }
      ASSERT_EQ(found.size(), expected.size());
      for (size_t i = 0; i < found.size(); ++i) {
        ASSERT_TRUE(Near(found[i], expected[i]))
            << "id " << everything.ids[i / kDim] << ": " << found[i] << " instead of " << expected[i];
      }
      one_.Apply(everything, learning_rate());
      for (uint32_t w = 0; w < cell_.workers; ++w) workers_[w].Apply(batches[w], learning_rate());
    }
    // Clocks count the ticks of workers: one process makes fewer if several workers share a key.
    CompareRows(/*clocks=*/ids_ == kDisjoint);
  }

 private:
  static TableSpec Spec(const Cell& cell, Data data) {
    TableSpec spec = NewSpec("t", kDim, OptimizerOf(cell.optimizer), {"uniform", -0.05, 0.05});
    if (data == kIntegers) spec.initializer = {"constant", 3, 0};
    return spec;
  }
  float learning_rate() const { return data_ == kIntegers ? 1.0f : 0.01f; }
  // Slots may be sums of hundreds of much larger terms (FTRL's z), added in another order.
  bool Near(float found, float expected, bool slot = false) const {
    if (data_ == kIntegers) return found == expected;
    const float tolerance = slot ? 1e-5f * std::max(0.2f, std::abs(expected)) : 1e-6f;
    return std::abs(found - expected) <= tolerance;
  }
  Batch NewBatch(uint32_t w) {
    Batch batch;
    for (size_t i = random_.Below(2 * kBatch + 1); i > 0; --i) {
      int64_t id = random_.Between(-kKeys, kKeys);
      if (random_.Chance(0.3)) id = random_.Between(0, 3);  // some are hot
      if (ids_ == kDisjoint) id = id * cell_.workers + w;
      batch.ids.push_back(id);
      for (size_t d = 0; d < kDim; ++d) {
        batch.gradients.push_back(data_ == kIntegers ? static_cast<float>(random_.Between(-4, 4))
                                                     : static_cast<float>(random_.Unit() * 0.4 - 0.2));
      }
    }
    return batch;
  }
  void CompareRows(bool clocks) {
    const auto expected = one_.Rows();
    const auto found = workers_[0].Rows();
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [key, row] : expected) {
      const auto it = found.find(key);
      ASSERT_NE(it, found.end()) << key;
      if (clocks) {
        ASSERT_EQ(it->second.first, row.first) << "clock of key " << key;
      }
      for (size_t i = 0; i < row.second.size(); ++i) {
        ASSERT_TRUE(Near(it->second.second[i], row.second[i], /*slot=*/i >= kDim))
            << "key " << key << ", float " << i << " of the row: " << it->second.second[i] << " instead of "
            << row.second[i];
      }
    }
  }

  const Cell cell_;
  const Ids ids_;
  const Data data_;
  LocalService service_;
  Process one_;
  std::vector<Process> workers_;
  Random random_;
};

TEST(Exactness, SgdOnIntegersBitForBit) {
  ForEveryCell("sgd", [](const Cell& cell) { Race(cell, Race::kShared, Race::kIntegers).Run(); });
}

TEST(Exactness, SgdOnFloats) {
  ForEveryCell("sgd", [](const Cell& cell) { Race(cell, Race::kShared, Race::kFloats).Run(); });
}

TEST(Exactness, EveryOptimizerOnDisjointIds) {
  for (const std::string& name : Optimizer::Names()) {
    ForEveryCell(name, [](const Cell& cell) { Race(cell, Race::kDisjoint, Race::kFloats).Run(); });
  }
}

}  // namespace
}  // namespace het::testing::exactness_test
