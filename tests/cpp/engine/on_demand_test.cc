// Rows that travel on demand (engine/on_demand.h): every worker knows the next lookups of all.
//
// The workers are engines with one store, in lock-step, over a network that delivers only when a call waits.
// One process has the union of their batches.
#include "het_tf/core/engine/on_demand.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <thread>

#include "het_tf/core/plan/gradient_sums.h"
#include "tests/cpp/testing/process.h"
#include "tests/cpp/testing/random.h"

namespace het::testing::on_demand_test {
namespace {

constexpr uint32_t kDim = Process::kDim;
constexpr int64_t kKeys = 41;
constexpr size_t kBatch = 9;  // ids of a worker and step, at most twice as many

// Frames stay with the sender until it waits for an answer. A look at the clock takes kLook seconds.
class LazyTransport : public LocalTransport {
 public:
  using LocalTransport::LocalTransport;
  void Send(OutFrame frame) override { unsent_.push_back(std::move(frame)); }
  bool Poll(double seconds, std::vector<Event>* events) override {
    if (seconds <= 0) return false;
    for (; !unsent_.empty(); unsent_.pop_front()) LocalTransport::Send(std::move(unsent_.front()));
    return LocalTransport::Poll(seconds, events);
  }
  double Now() override { return now_ += kLook; }

 private:
  static constexpr double kLook = 1e-4;
  double now_ = 0;
  std::deque<OutFrame> unsent_;
};

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
    for (Process& worker : workers_) worker.engine().steps().EndPass(Process::kLayer, Place(step_ - 1));
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
  TableSpec Spec() const {
    TableSpec spec;
    spec.name = "t";
    spec.dim = kDim;
    spec.optimizer.name = config_.optimizer;
    spec.initializer = {"constant", 3, 0};
    return spec;
  }
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
      const FeatureIds feature{0, Span<const int64_t>(ids.data(), ids.size()), {}};
      const GlobalStep::Ids all{
          {&feature, 1}, {Span<const int64_t>(ends)}, Place(planned_[w]), w, config_.summed};
      const Status status = worker(w).WithCall(batches[w].ids, [&](const BatchCall& call) {
        return worker(w).engine().steps().Plan(call, 8, &all);
      });
      ASSERT_TRUE(status.ok()) << status.message();
    }
  }
  void ApplySummed(const std::vector<Batch>& batches) {
    const uint32_t workers = config_.workers;
    std::vector<Bytes> sent(workers);
    std::vector<Vector<int32_t>> splits(workers);
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
      ASSERT_TRUE(PackSums(Status(), sums, layout.signature, workers, &sent[w], &splits[w]).ok());
    }
    for (uint32_t to = 0; to < workers; ++to) {
      Bytes bytes;
      Vector<int32_t> lengths;
      for (uint32_t from = 0; from < workers; ++from) {
        const size_t begin = std::accumulate(splits[from].begin(), splits[from].begin() + to, size_t{0});
        bytes.insert(bytes.end(), sent[from].begin() + static_cast<std::ptrdiff_t>(begin),
                     sent[from].begin() + static_cast<std::ptrdiff_t>(begin) + splits[from][to]);
        lengths.push_back(splits[from][to]);
      }
      MergedSums merged;
      ASSERT_TRUE(
          MergeSums(layout, {bytes.data(), bytes.size()}, {lengths.data(), lengths.size()}, &merged).ok());
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

template <typename Fn>
void ForEachConfig(const std::vector<std::string>& optimizers, bool summed, Fn fn) {
  for (const std::string& optimizer : optimizers) {
    for (uint32_t workers : {2u, 4u}) {
      for (size_t capacity : {size_t{0}, size_t{4}, size_t{40}, size_t{500}}) {
        Config config;
        config.workers = workers;
        config.capacity = capacity;
        config.optimizer = optimizer;
        config.summed = summed;
        SCOPED_TRACE(config.ToString());
        fn(config);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// Defects: a row is not sent before another worker reads it, a copy is read after another worker has updated
// the row, a step ends before its rows are applied.
TEST(OnDemandExact, WorkersAreOneProcessInEveryRead) {
  ForEachConfig({"sgd"}, /*summed=*/false, [](const Config& config) {
    Fleet fleet(config);
    for (uint64_t step = 0; step < Scaled(200) + 20; ++step) {
      fleet.Step();
      fleet.ExpectExact(0);
      if (::testing::Test::HasFatalFailure()) return;
    }
  });
}

// Defects: two workers update a shared key, or none; an owner's copy counts as outdated, with its unsent
// ticks. Sums of the workers are exact; optimizers round.
TEST(OnDemandExact, EveryOptimizerWhereGradientsAreSummed) {
  ForEachConfig(Optimizer::Names(), /*summed=*/true, [](const Config& config) {
    Fleet fleet(config);
    for (uint64_t step = 0; step < Scaled(200) + 20; ++step) {
      fleet.Step();
      fleet.ExpectExact(1e-6f);
      if (::testing::Test::HasFatalFailure()) return;
    }
  });
}

// As an optimizer that leaves a step out, at all workers. Defects: the next batch is refused; or a worker
// reads it before another one has sent what it had ticked in earlier steps.
TEST(OnDemandKept, AStepThatNobodyAppliesIsNoUpdate) {
  for (const bool summed : {false, true}) {
    ForEachConfig({"sgd"}, summed, [](const Config& config) {
      Fleet fleet(config);
      for (uint64_t step = 0; step < Scaled(200) + 40; ++step) {
        fleet.Step(/*plan=*/true, /*apply=*/step % 4 != 3);
        fleet.ExpectExact(0);
        if (::testing::Test::HasFatalFailure()) return;
      }
    });
  }
}

// Defect: an update of rows that other workers have read without it.
TEST(OnDemandKept, RefusesALateApply) {
  for (const bool summed : {false, true}) {
    Config config;
    config.summed = summed;
    Fleet fleet(config);
    for (int step = 0; step < 3; ++step) fleet.Step();
    fleet.Step(/*plan=*/true, /*apply=*/false);
    const std::vector<float> tickets = fleet.tickets(0);
    fleet.Step(/*plan=*/true, /*apply=*/false);
    Process& worker = fleet.worker(0);
    GradientSums sums;
    SumsLayout layout;
    for (const Status& status :
         {worker.TryApplyKept(tickets, 1), worker.WithTickets(tickets, 1, [&](const KeptCall& call) {
            return worker.engine().steps().SumKept(call, 2, &sums, &layout);
          })}) {
      EXPECT_EQ(status.code(), Code::kFailedPrecondition);
      EXPECT_THAT(status.message(), ::testing::HasSubstr("before the next batch"));
    }
    fleet.Step();
    fleet.ExpectExact(0);
  }
}

// Defect: rows stay unsent when a loop is abandoned, and the next loop reads them.
TEST(OnDemandExact, AnyLookupMayFollowAFlushOfAll) {
  Config config;
  config.workers = 3;
  config.capacity = 20;
  Fleet fleet(config);
  for (int round = 0; round < 12; ++round) {
    for (int step = 0; step < 4; ++step) {
      fleet.Step(/*plan=*/round % 3 != 2);
      fleet.ExpectExact(0);
      ASSERT_FALSE(::testing::Test::HasFatalFailure()) << "round " << round;
    }
    fleet.Flush();
    fleet.LeaveStream();
  }
}

// Defect: a silent read of a row with another worker's unsent ticks.
TEST(OnDemandExact, RefusesALookupOtherThanTheSuccessor) {
  Config config;
  config.late = 0;
  Fleet fleet(config);
  for (int step = 0; step < 3; ++step) fleet.Step();
  std::vector<float> rows;
  const Status status = fleet.worker(0).TryLookup({1, 2, 3}, &rows);
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("flush(all_ranks=True) on all ranks"));
  fleet.Step();  // nothing has changed: the successor is served
  fleet.ExpectExact(0);
  fleet.Flush();
  EXPECT_TRUE(fleet.worker(0).TryLookup({1, 2, 3}, &rows).ok());
}

// When iterators are restored, one rank may have planned a step and another not. Defect: two owners update a
// shared key, one by the stream and one by its hash.
TEST(OnDemandExact, SummedGradientsTakeAPlan) {
  Config config;
  config.summed = true;
  Fleet fleet(config);
  for (int step = 0; step < 3; ++step) fleet.Step();
  fleet.Flush();
  std::vector<float> rows;
  const Status status = fleet.worker(0).TryLookup({1, 2, 3}, &rows);
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("who updates a row"));
  fleet.Step();  // nothing has changed
  fleet.ExpectExact(0);
}

// Defect: a second layer of a table runs its step within that of the first.
TEST(OnDemandExact, RefusesTwoLayersOfATable) {
  Config config;
  config.late = 0;
  Fleet fleet(config);
  fleet.Step();
  Process& worker = fleet.worker(0);
  const std::vector<int64_t> ids = {1}, ends = {1, 1};
  const FeatureIds feature{0, Span<const int64_t>(ids.data(), 1), {}};
  const GlobalStep::Ids all{{&feature, 1}, {Span<const int64_t>(ends)}, 1, 0, false};
  const auto other = [&](BatchCall call) {
    call.layer = 2;
    EXPECT_TRUE(worker.engine().steps().Plan(call, 8, &all).ok());
    std::vector<float> row(kDim);
    float* const out[] = {row.data()};
    uint64_t token = 0;
    return worker.engine().steps().Lookup(call, {out, 1}, &token);
  };
  EXPECT_THAT(worker.WithCall(ids, other).message(), ::testing::HasSubstr("one EmbeddingCollection"));
  fleet.Flush();
  EXPECT_TRUE(worker.WithCall(ids, other).ok()) << "the first layer is at rest";
  std::vector<float> rows;
  const Status status = worker.TryLookup(fleet.last()[0].ids, &rows);
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("one EmbeddingCollection"));
}

// A pass begins with its first step, and ends with its last one or with a flush of all workers. Defect: a
// call between sees rows without the updates that other workers hold back, or changes such a row.
TEST(OnDemandPass, RefusesOtherCallsUntilItHasEnded) {
  for (const Bound& bound : {Bound(0), Bound(10)}) {
    Config config;
    config.pull = config.push = bound;
    config.late = 0;
    Fleet fleet(config);
    Process& worker = fleet.worker(0);
    const Key key = 5;
    const std::vector<float> row(kDim, 1);
    const auto calls = [&] {
      Tables& tables = worker.engine().tables();
      std::vector<float> values(kDim);
      size_t removed = 0;
      std::vector<Status> all{
          tables.Read("t", {&key, 1}, values.data()), tables.Assign("t", {&key, 1}, row.data(), false),
          tables.Remove("t", {&key, 1}, &removed),
          worker.engine().checkpoints().VisitRows("t", [](const RowBatch&) { return Status(); }),
          worker.engine().checkpoints().BeginLoad({"loader", 10})};
      if (all.back().ok()) all.push_back(worker.engine().checkpoints().AbortLoad());
      return all;
    };
    const auto expect = [&](bool served, const char* when) {
      for (const Status& status : calls()) {
        EXPECT_EQ(status.code(), served ? Code::kOk : Code::kFailedPrecondition) << when << status.message();
        EXPECT_EQ(status.message().find("het_tf.flush(all_ranks=True)") == std::string::npos, served);
      }
    };
    expect(true, "before the first step: ");
    for (int step = 0; step < 3; ++step) fleet.Step();
    expect(false, "within a pass: ");
    ASSERT_TRUE(worker.engine().caches().Flush().ok());
    expect(false, "after a flush of one worker: ");
    fleet.EndPass();
    expect(true, "after the pass: ");
    fleet.LeaveStream();
    fleet.Step();
    expect(false, "within the next pass: ");
    fleet.Flush();
    expect(true, "after a flush of all: ");
  }
}

// Defect: copies are still trusted after the pass, although nothing tells who changes their rows.
TEST(OnDemandPass, CopiesAreCheckedAfterIt) {
  Config config;
  config.late = 0;
  Fleet fleet(config);
  for (int step = 0; step < 10; ++step) fleet.Step();
  fleet.Flush();
  std::vector<Key> keys;
  for (const auto& [key, row] : fleet.worker(0).Rows()) keys.push_back(key);
  ASSERT_GT(keys.size(), 20u);
  const std::vector<float> rows(keys.size() * kDim, 77);
  std::vector<float> found(rows.size());
  Tables& of_other = fleet.worker(1).engine().tables();
  ASSERT_TRUE(of_other.Assign("t", {keys.data(), keys.size()}, rows.data(), false).ok());
  ASSERT_TRUE(fleet.worker(0).engine().tables().Read("t", {keys.data(), keys.size()}, found.data()).ok());
  EXPECT_EQ(found, rows);
}

// Defect: rows are sent although no other worker uses them.
TEST(OnDemandExact, RowsOfOneWorkerStayThere) {
  Config config;
  config.late = 0;
  Fleet fleet(config);
  for (int step = 0; step < 40; ++step) fleet.Step();
  const uint64_t pushed = fleet.pushed();
  EXPECT_GT(pushed, 0u);
  fleet.Flush();
  EXPECT_GE(fleet.pushed() - pushed, 2u * 41) << "of each step and worker one row, and one of each worker";
}

// Defect: an update that reached its age is on its way when another worker reads the row.
TEST(OnDemandExact, RowsThatReachTheirAgeGoEarlierAlone) {
  for (const bool summed : {false, true}) {
    Config config;
    config.workers = 3;
    config.summed = summed;
    config.late = 0;  // else everything is sent now and then
    config.push_max_age = 0.01;
    Fleet fleet(config);
    for (uint64_t step = 0; step < Scaled(400) + 40; ++step) {
      fleet.Step();
      fleet.ExpectExact(summed ? 1e-6f : 0);
      ASSERT_FALSE(::testing::Test::HasFatalFailure()) << "step " << step;
    }
    EXPECT_GT(fleet.Sum(&Counters::age_push), 40u);
  }
}

// For TSan: a pipeline plans while steps run, and another thread flushes. Defect: a tick is sent twice, or
// not at all, when a flush comes within a step.
TEST(OnDemandThreads, PlanTrainAndFlush) {
  Config config;
  config.late = 0;
  Fleet fleet(config);
  Process& worker = fleet.worker(0);
  const auto rounds = static_cast<int64_t>(50 * Scaled(20));
  std::atomic<int64_t> done{0};
  const auto ids_of = [](int64_t i) { return std::vector<int64_t>{i % 50, 77, 100 + i % 7}; };
  std::thread pipeline([&] {
    for (int64_t i = 0; i < rounds; ++i) {
      std::vector<int64_t> ids = ids_of(i);
      const std::vector<int64_t> mine = ids;
      ids.push_back(i % 7);  // the other worker's
      const std::vector<int64_t> ends = {3, 4};
      const FeatureIds feature{0, Span<const int64_t>(ids.data(), ids.size()), {}};
      const GlobalStep::Ids all{
          {&feature, 1}, {Span<const int64_t>(ends)}, static_cast<uint64_t>(i) + 1, 0, false};
      EXPECT_TRUE(
          worker
              .WithCall(mine,
                        [&](const BatchCall& call) { return worker.engine().steps().Plan(call, 8, &all); })
              .ok());
      while (i - done.load() > 4) std::this_thread::yield();
    }
  });
  std::thread flusher([&] {
    while (done.load() < rounds) EXPECT_TRUE(worker.engine().caches().Flush().ok());
  });
  for (int64_t i = 0; i < rounds; ++i) {
    // One that was not planned yet is refused, unless everything was just sent: both are right.
    while (worker.table()->planned.load() <= i) {
      std::vector<float> rows;
      if (!worker.TryLookup(ids_of(i), &rows).ok()) continue;
      Batch batch{ids_of(i), std::vector<float>(3 * kDim, -1)};
      worker.Apply(batch, worker.table()->planned.load() > i ? 1.0f : 0.0f);
    }
    done.store(i + 1);
  }
  pipeline.join();
  flusher.join();
  ASSERT_TRUE(worker.engine().caches().Flush().ok());
  EXPECT_EQ(worker.Rows().at(77).second[0], static_cast<float>(3 + rounds));
}

// Within bounds: a read misses no more than where rows are sent at once (docs/protocol.md, I3). Would catch:
// a row that is held back although another worker uses it next, or is sent too late to be told.
TEST(OnDemandBounded, ReadsMissNoMoreThanTheBound) {
  for (uint32_t workers : {2u, 3u}) {
    for (int64_t bound : {3, 10}) {
      Config config;
      config.workers = workers;
      if (workers == 3) config.push_max_age = 0.02;
      config.pull = bound;
      config.push = bound;
      config.late = 0;  // else everything is sent now and then
      config.counts = true;
      SCOPED_TRACE(config.ToString() + ", bound " + std::to_string(bound));
      Fleet fleet(config);
      const auto most = static_cast<float>(bound + (workers - 1) * (bound + 3));
      for (uint64_t step = 0; step < Scaled(400) + 100; ++step) {
        fleet.Step();
        size_t at = 0;
        for (const auto& rows : fleet.rows()) {
          for (float value : rows) ASSERT_LE(fleet.expected()[at++] - value, most) << "step " << step;
        }
      }
      fleet.Flush();
      std::map<Key, std::vector<float>> found;
      for (const auto& [key, row] : fleet.worker(0).Rows()) found[key] = row.second;
      for (const auto& [key, row] : fleet.one().Rows()) EXPECT_EQ(found[key], row.second) << key;
    }
  }
}

}  // namespace
}  // namespace het::testing::on_demand_test
