// Rows that travel on demand (ext/streams/cc/window.h): what every worker reads.

#include <atomic>
#include <map>
#include <thread>

#include "tests/testing/on_demand_fleet.h"

namespace het::testing::on_demand {
namespace {

// Takes steps by step(number); after each of them every read must have been that of one process.
template <typename Step>
void ExpectExactSteps(Fleet* fleet, uint64_t steps, float off, const Step& step) {
  for (uint64_t number = 0; number < steps; ++number) {
    step(number);
    fleet->ExpectExact(off);
    ASSERT_FALSE(::testing::Test::HasFatalFailure()) << "step " << number;
  }
}

template <typename Fn>
void ForEachConfig(const std::vector<std::string>& optimizers, bool summed, Fn fn) {
  for (const std::string& optimizer : optimizers) {
    for (uint32_t workers : {2u, 4u}) {
      for (size_t capacity : {size_t{0}, size_t{4}, size_t{40}, size_t{500}}) {
        if (kSanitized && capacity != 4) continue;
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
    ExpectExactSteps(&fleet, Scaled(200) + 20, 0, [&](uint64_t) { fleet.Step(); });
  });
}

// Defects: two workers update a shared key, or none; an owner's copy counts as outdated, with its unsent
// ticks. Sums of the workers are exact; optimizers round.
TEST(OnDemandExact, EveryOptimizerWhereGradientsAreSummed) {
  ForEachConfig(Optimizer::Names(), /*summed=*/true, [](const Config& config) {
    Fleet fleet(config);
    ExpectExactSteps(&fleet, Scaled(200) + 20, 1e-6f, [&](uint64_t) { fleet.Step(); });
  });
}

// As an optimizer that leaves a step out, at all workers. Defects: the next batch is refused; or a worker
// reads it before another one has sent what it had ticked in earlier steps.
TEST(OnDemandKept, AStepThatNobodyAppliesIsNoUpdate) {
  for (const bool summed : {false, true}) {
    ForEachConfig({"sgd"}, summed, [](const Config& config) {
      Fleet fleet(config);
      ExpectExactSteps(&fleet, Scaled(200) + 40, 0,
                       [&](uint64_t step) { fleet.Step(/*plan=*/true, /*apply=*/step % 4 != 3); });
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
      EXPECT_TRUE(Fails(status, Code::kFailedPrecondition, "before the next batch"));
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
    ExpectExactSteps(&fleet, 4, 0, [&](uint64_t) { fleet.Step(/*plan=*/round % 3 != 2); });
    ASSERT_FALSE(HasFatalFailure()) << "round " << round;
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
  EXPECT_TRUE(Fails(fleet.worker(0).TryLookup({1, 2, 3}, &rows), Code::kFailedPrecondition,
                    "flush(all_ranks=True) on all ranks"));
  fleet.Step();  // nothing has changed: the successor is served
  fleet.ExpectExact(0);
  fleet.Flush();
  EXPECT_TRUE(fleet.worker(0).TryLookup({1, 2, 3}, &rows).ok());
}

// When iterators are restored, workers have no plan for some steps: the hash chooses who updates a row, if
// that holds for all of them (gradient_sums_test.cc has the others). Defect: such a step is refused, or
// leaves a row unsent for the next planned one.
TEST(OnDemandExact, SummedGradientsWithoutAPlan) {
  Config config;
  config.summed = true;
  Fleet fleet(config);
  ExpectExactSteps(&fleet, 12, 0, [&](uint64_t step) {
    if (step % 4 == 3) fleet.Flush();
    fleet.Step(/*plan=*/step % 4 != 3);
  });
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
    EXPECT_TRUE(Window::Of(worker.engine().lookahead()).Plan(call, 8, &all).ok());
    std::vector<float> row(kDim);
    float* const out[] = {row.data()};
    uint64_t token = 0;
    return worker.engine().steps().Lookup(call, {out, 1}, &token);
  };
  const char* const told = "one EmbeddingCollection";
  EXPECT_TRUE(Fails(worker.WithCall(ids, other), Code::kFailedPrecondition, told));
  fleet.Flush();
  EXPECT_TRUE(worker.WithCall(ids, other).ok()) << "the first layer is at rest";
  std::vector<float> rows;
  EXPECT_TRUE(Fails(worker.TryLookup(fleet.last()[0].ids, &rows), Code::kFailedPrecondition, told));
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
    const float off = summed ? 1e-6f : 0;
    ExpectExactSteps(&fleet, Scaled(400) + 40, off, [&](uint64_t) { fleet.Step(); });
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
      EXPECT_TRUE(worker
                      .WithCall(mine,
                                [&](const BatchCall& call) {
                                  return Window::Of(worker.engine().lookahead()).Plan(call, 8, &all);
                                })
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
      if (worker.table()->planned.load() > i) worker.Apply(batch, 1.0f);
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

// --- passes: what is refused within one, and after it

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
      std::vector<Status> all{tables.Read("t", {&key, 1}, values.data()),
                              tables.Assign("t", {&key, 1}, row.data(), false),
                              tables.Remove("t", {&key, 1}, &removed),
                              worker.engine().tables().Visit("t", [](const RowBatch&) { return Status(); }),
                              worker.engine().loads().Begin("loader", 10)};
      if (all.back().ok()) all.push_back(worker.engine().loads().Abort());
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
  ASSERT_TRUE(of_other.Assign("t", keys, rows.data(), false).ok());
  ASSERT_TRUE(fleet.worker(0).engine().tables().Read("t", keys, found.data()).ok());
  EXPECT_EQ(found, rows);
}

}  // namespace
}  // namespace het::testing::on_demand
