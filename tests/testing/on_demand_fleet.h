// Workers whose rows travel on demand (ext/streams/cc/window.h): every worker knows the next lookups of all.
//
// The workers are engines with one store, in lock-step, over a network that delivers only when a call waits.
// One process has the union of their batches.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "het_tf/core/plan/gradient_sums.h"
#include "het_tf/ext/streams/cc/window.h"
#include "tests/testing/lazy_transport.h"
#include "tests/testing/optimizer_of.h"
#include "tests/testing/process.h"
#include "tests/testing/random.h"
#include "tests/testing/sums_exchange.h"
#include "tests/testing/table_specs.h"

namespace het::testing::on_demand {

inline constexpr uint32_t kDim = Process::kDim;
inline constexpr int64_t kKeys = 41;
inline constexpr size_t kBatch = 9;  // ids of a worker and step, at most twice as many

struct Config {
  uint32_t workers = 2;
  size_t capacity = 500;
  std::string optimizer = "sgd";
  bool summed = false;
  Bound pull = 0, push = 0;
  double late = 0.3;  // chance that a step's successor is not planned when it ends
  std::optional<double> push_max_age = {};
  bool counts = false;  // a row counts its ticks: ids of a batch come once, with a gradient of -1

  std::string ToString() const {
    return std::to_string(workers) + " workers, capacity " + std::to_string(capacity) + ", " + optimizer +
           (summed ? ", summed" : "");
  }
};

class Fleet {
 public:
  explicit Fleet(const Config& config)
      : config_(config),
        service_(5, /*hash_seed=*/77),
        one_(Spec()),
        random_(config.workers + config.capacity) {
    CacheConfig cache;
    cache.capacity = config.capacity;
    cache.pull_bound = config.pull;
    cache.push_bound = config.push;
    cache.write_back_rows = 2;
    cache.push_max_age = config.push_max_age;
    for (uint32_t w = 0; w < config.workers; ++w)
      workers_.emplace_back(Spec(), &service_, cache, std::make_unique<LazyTransport>(&service_));
    planned_.resize(config.workers);
  }

  Process& worker(uint32_t w) { return workers_[w]; }
  Process& one() { return one_; }
  Random& random() { return random_; }

  // Batches of the coming steps. Each has an id of its own, so that all batches differ.
  void AddStep() {
    steps_.emplace_back();
    for (uint32_t w = 0; w < config_.workers; ++w) {
      Batch batch = RandomBatch();
      batch.ids.push_back(1000 + static_cast<int64_t>(w));
      batch.ids.push_back(10000 + static_cast<int64_t>((left_ * 1000 + steps_.size()) * config_.workers + w));
      for (size_t d = 0; d < 2 * kDim; ++d) batch.gradients.push_back(1);
      if (config_.counts) {
        std::sort(batch.ids.begin(), batch.ids.end());
        batch.ids.erase(std::unique(batch.ids.begin(), batch.ids.end()), batch.ids.end());
        batch.gradients.assign(batch.ids.size() * kDim, -1);
      } else if (random_.Chance(0.1))
        std::fill(batch.gradients.begin(), batch.gradients.end(), 0.0f);
      steps_.back().push_back(std::move(batch));
    }
  }

  // One step of all workers. rows(w) has the results of lookups. apply false: gradients are kept, with
  // tickets(w).
  void Step(bool plan = true, bool apply = true) {
    while (steps_.size() < step_ + 6) AddStep();
    const std::vector<Batch>& batches = steps_[step_];
    rows_.assign(config_.workers, {});
    for (uint32_t w = 0; w < config_.workers; ++w) {
      if (plan) PlanUntil(w, step_);
      rows_[w] = worker(w).Lookup(batches[w].ids);
    }
    Batch everything;
    for (const Batch& batch : batches) everything.Append(batch);
    expected_ = one_.Lookup(everything.ids);
    if (apply) one_.Apply(everything, 1);
    for (uint32_t w = 0; w < config_.workers && plan; ++w) {
      if (!random_.Chance(config_.late)) PlanUntil(w, step_ + 1 + random_.Below(4));
    }
    tickets_.assign(config_.workers, {});
    if (!apply) {
      for (uint32_t w = 0; w < config_.workers; ++w) {
        ASSERT_TRUE(worker(w).TryKeep(batches[w], &tickets_[w], w).ok());
      }
    } else if (config_.summed) {
      ApplySummed(batches);
    } else {
      const auto first = static_cast<uint32_t>(random_.Below(config_.workers));
      for (uint32_t i = 0; i < config_.workers; ++i) {
        const uint32_t w = (first + i) % config_.workers;
        worker(w).Apply(batches[w], 1);
      }
    }
    ++step_;
  }
  // Abandons the planned stream; other batches follow.
  void LeaveStream() {
    steps_.resize(step_);
    for (size_t& planned : planned_) planned = step_;
    ++left_;
    while (steps_.size() < step_ + 1) AddStep();
  }
  void Flush() {
    for (Process& worker : workers_) ASSERT_TRUE(worker.engine().caches().Flush().ok());
    for (Process& worker : workers_) worker.engine().caches().Settle();
  }
  // No step of the pass is behind the last one.
  void EndPass() {
    for (Process& worker : workers_)
      Window::Of(worker.engine().lookahead()).EndPass(Process::kLayer, Place(step_ - 1));
  }
  // `tolerance` is relative to the largest number that any row has had, since optimizers round terms that
  // large.
  void ExpectExact(float tolerance) {
    std::vector<float> found;
    for (const auto& rows : rows_) found.insert(found.end(), rows.begin(), rows.end());
    ASSERT_EQ(found.size(), expected_.size());
    for (float value : expected_) largest_ = std::max(largest_, std::abs(value));
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_LE(std::abs(found[i] - expected_[i]), tolerance * largest_)
          << "step " << step_ << ", float " << i << ": " << found[i] << " instead of " << expected_[i];
    }
  }
  const std::vector<std::vector<float>>& rows() const { return rows_; }
  const std::vector<Batch>& last() const { return steps_[step_ - 1]; }
  const std::vector<float>& expected() const { return expected_; }
  const std::vector<float>& tickets(uint32_t w) const { return tickets_[w]; }
  uint64_t Sum(uint64_t Counters::*counter) {
    uint64_t rows = 0;
    for (Process& worker : workers_) {
      rows += worker.engine().tables().Stats("t").value().cache->counters.*counter;
    }
    return rows;
  }
  uint64_t pushed() { return Sum(&Counters::bound_push) + Sum(&Counters::evict_push); }

 private:
  TableSpec Spec() const { return NewSpec("t", kDim, OptimizerOf(config_.optimizer), {"constant", 3, 0}); }
  uint64_t Place(size_t step) const { return (uint64_t{left_ + 1} << 40) + step + 1; }
  Batch RandomBatch() {
    Batch batch;
    for (size_t i = random_.Below(2 * kBatch + 1); i > 0; --i) {
      batch.ids.push_back(random_.Chance(0.3) ? random_.Between(0, 3) : random_.Between(-kKeys, kKeys));
      for (size_t d = 0; d < kDim; ++d) batch.gradients.push_back(static_cast<float>(random_.Between(-4, 4)));
    }
    return batch;
  }
  void PlanUntil(uint32_t w, size_t last) {
    for (; planned_[w] <= last; ++planned_[w]) {
      const std::vector<Batch>& batches = steps_[planned_[w]];
      std::vector<int64_t> ids, ends;
      for (const Batch& batch : batches) {
        ids.insert(ids.end(), batch.ids.begin(), batch.ids.end());
        ends.push_back(static_cast<int64_t>(ids.size()));
      }
      const FeatureIds feature{0, ids, {}};
      const GlobalStep::Ids all{
          {&feature, 1}, {Span<const int64_t>(ends)}, Place(planned_[w]), w, config_.summed};
      const Status status = worker(w).WithCall(batches[w].ids, [&](const BatchCall& call) {
        return Window::Of(worker(w).engine().lookahead()).Plan(call, 8, &all);
      });
      ASSERT_TRUE(status.ok()) << status.message();
    }
  }
  void ApplySummed(const std::vector<Batch>& batches) {
    const uint32_t workers = config_.workers;
    SumsExchange exchange(workers);
    SumsLayout layout;  // equal at all workers
    for (uint32_t w = 0; w < workers; ++w) {
      GradientSums sums;
      std::vector<float> tickets;
      ASSERT_TRUE(worker(w).TryKeep(batches[w], &tickets, w).ok());
      const Status status = worker(w).WithTickets(tickets, 1, [&](const KeptCall& call) {
        layout = SumsLayout();
        return worker(w).engine().steps().SumKept(call, workers, &sums, &layout);
      });
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_TRUE(exchange.Send(w, sums, layout.signature).ok());
    }
    for (uint32_t to = 0; to < workers; ++to) {
      MergedSums merged;
      ASSERT_TRUE(exchange.Merge(to, layout, &merged).ok());
      const float rate = 1;
      const Status status = worker(to).engine().steps().ApplySums({&worker(to).table(), 1}, Process::kLayer,
                                                                  merged, {&rate, 1});
      ASSERT_TRUE(status.ok()) << status.message();
    }
  }

  const Config config_;
  LocalService service_;
  Process one_;
  std::deque<Process> workers_;
  Random random_;
  std::vector<std::vector<Batch>> steps_;
  std::vector<size_t> planned_;  // by worker: steps that were planned
  size_t step_ = 0;
  size_t left_ = 0;
  float largest_ = 1;
  std::vector<std::vector<float>> rows_;
  std::vector<float> expected_;
  std::vector<std::vector<float>> tickets_;
};

}  // namespace het::testing::on_demand
