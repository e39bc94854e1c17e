// The engine's two operations against a plain reference, for direct and cached tables.
#include "het_tf/core/engine/engine.h"

#include <atomic>
#include <chrono>
#include <map>
#include <random>
#include <thread>

#include "tests/testing/engine_step.h"
#include "tests/testing/fits_in.h"
#include "tests/testing/table_specs.h"

namespace het {
namespace {

using testing::Cached;
using testing::FitsIn;
using testing::Range;
using testing::StepOf;
using testing::Train;

constexpr size_t kDim = 5;

TableSpec Spec(const std::string& name, const std::string& optimizer = "sgd") {
  return testing::NewSpec(name, kDim, optimizer, {"zeros", 0, 0});
}

struct Mode {
  const char* name;
  TableOptions options;
  size_t threads;
};

class EngineTest : public ::testing::TestWithParam<Mode> {
 protected:
  EngineTest() : engine_("test", GetParam().threads) {}
  void Create(const TableSpec& spec) { ASSERT_TRUE(engine_.tables().Create(spec, GetParam().options).ok()); }
  Engine engine_;
};

INSTANTIATE_TEST_SUITE_P(Modes, EngineTest,
                         ::testing::Values(Mode{"direct", {}, 1}, Mode{"direct2", {}, 2},
                                           Mode{"strict", Cached(1000, 0), 1},
                                           Mode{"stale", Cached(1000, 3), 2}, Mode{"small", Cached(7, 2), 1},
                                           Mode{"none", Cached(0, 10), 1},
                                           Mode{"unbounded", Cached(50, kUnbounded), 1}),
                         [](const auto& info) { return info.param.name; });

// SGD with integer gradients and learning rate 1 is exact, in any order of addition.
TEST_P(EngineTest, EqualsAReferenceBitForBit) {
  Create(Spec("t"));
  std::mt19937_64 random(1);
  std::map<int64_t, std::vector<float>> reference;
  for (int step = 0; step < 200; ++step) {
    std::vector<int64_t> ids(step == 7 ? 20000 : random() % 60);
    for (int64_t& id : ids)
      id = static_cast<int64_t>((random() % 40) * (random() % 5 == 0 ? ~uint64_t{0} << 59 : 1));
    StepOf call(&engine_, {{"t", ids}});
    ASSERT_TRUE(call.Lookup(true).ok());
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto& row = reference.try_emplace(ids[i], kDim, 0.0f).first->second;
      for (size_t d = 0; d < kDim; ++d) ASSERT_EQ(call.rows[0][i * kDim + d], row[d]) << "step " << step;
    }
    std::vector<float> gradients(ids.size() * kDim);
    for (float& g : gradients) g = static_cast<float>(static_cast<int>(random() % 7) - 3);
    for (size_t i = 0; i < ids.size(); ++i) {
      for (size_t d = 0; d < kDim; ++d) reference[ids[i]][d] -= gradients[i * kDim + d];
    }
    ASSERT_TRUE(Ok(call.Apply({gradients})));
  }
  const TableRows rows = engine_.tables().Scan("t").value();
  for (size_t i = 0; i < rows.keys.size(); ++i) {
    for (size_t d = 0; d < kDim; ++d) {
      EXPECT_EQ(rows.rows[i * kDim + d], reference[rows.keys[i]][d]);
    }
  }
}

TEST_P(EngineTest, RowsThatWereOnlyReadAreNotStored) {
  Create(Spec("t"));
  StepOf call(&engine_, {{"t", {1, 2, 3}}});
  ASSERT_TRUE(call.Lookup(true).ok());
  ASSERT_TRUE(call.Lookup(false).ok());
  EXPECT_EQ(engine_.tables().Size("t").value(), 0u);
}

TEST_P(EngineTest, OldTokensStillWork) {
  Create(Spec("t"));
  StepOf first(&engine_, {{"t", {1, 2}}});
  ASSERT_TRUE(first.Lookup(true).ok());
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(StepOf(&engine_, {{"t", {i, i + 1}}}).Lookup(true).ok());
  }
  ASSERT_TRUE(first.Apply(first.Gradients(1)).ok());
  ASSERT_TRUE(first.Lookup(false).ok());
  EXPECT_EQ(first.rows[0][0], -1);
}

TEST_P(EngineTest, AssignRemoveClear) {
  Create(Spec("t", "adagrad"));
  ASSERT_TRUE(Train(&engine_, {{"t", {1, 2}}}).ok());
  const std::vector<int64_t> keys = {2, 9};
  std::vector<float> values(2 * kDim, 4);
  ASSERT_TRUE(engine_.tables().Assign("t", Span<const Key>(keys.data(), 2), values.data(), false).ok());
  StepOf both(&engine_, {{"t", {2, 9}}});
  ASSERT_TRUE(both.Lookup(false).ok());
  EXPECT_EQ(both.rows[0], values);
  EXPECT_EQ(engine_.tables().Size("t").value(), 3u);
  size_t removed = 0;
  ASSERT_TRUE(engine_.tables().Remove("t", Span<const Key>(keys.data(), 2), &removed).ok());
  EXPECT_EQ(removed, 2u);
  ASSERT_TRUE(both.Lookup(true).ok());
  EXPECT_EQ(both.rows[0][0], 0);
  ASSERT_TRUE(engine_.tables().Clear("t").ok());
  EXPECT_EQ(engine_.tables().Size("t").value(), 0u);
  ASSERT_TRUE(both.Apply(both.Gradients(1)).ok());
  EXPECT_EQ(engine_.tables().Size("t").value(), 2u);
}

// Another thread drops a table and creates it again in the middle of an Apply, between the search for its
// rows and their change: where the store asks for the time.
TEST(EngineDrop, InTheMiddleOfAnApply) {
  std::atomic<bool> armed{false};
  std::atomic<bool> done{false};
  std::thread dropper;
  std::unique_ptr<Engine> engine;
  engine = std::make_unique<Engine>("dropping", 1, [&]() -> uint32_t {
    if (armed.exchange(false)) {
      dropper = std::thread([&] {
        EXPECT_TRUE(engine->tables().Drop("t").ok());
        EXPECT_TRUE(engine->tables().Create(Spec("t"), TableOptions()).ok());
        done = true;
      });
      // Long enough for the drop, if nothing stops it.
      for (int i = 0; i < 200 && !done; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return 1700000000;
  });
  ASSERT_TRUE(engine->tables().Create(Spec("t"), TableOptions()).ok());
  StepOf call(engine.get(), {{"t", Range(0, 3000)}});
  ASSERT_TRUE(call.Lookup(true).ok());
  armed = true;
  EXPECT_TRUE(call.Apply(call.Gradients(1)).ok());
  ASSERT_TRUE(dropper.joinable());
  dropper.join();
  EXPECT_EQ(engine->tables().Size("t").value(), 0u) << "dropped after the step, or before it";
}

// The embedded store enforces limits by its own clock; a later declaration changes them.
TEST_P(EngineTest, LimitsBoundTheTable) {
  uint32_t now = 1700000000;
  Engine engine("growing", GetParam().threads, [&now] { return now; });
  TableSpec spec = Spec("t");
  spec.limits.emplace().ttl = 100;
  auto train = [&](int64_t first, int64_t count) {
    ASSERT_TRUE(Train(&engine, {{"t", Range(first, static_cast<size_t>(count))}}).ok());
    ASSERT_TRUE(engine.caches().Flush().ok());
  };
  ASSERT_TRUE(engine.tables().Create(spec, GetParam().options).ok());
  train(0, 300);
  now += 100;
  StepOf before(&engine, {{"t", {1000, 5}}});  // its rows are found again after others went
  ASSERT_TRUE(before.Lookup(true).ok());
  for (int i = 0; i < 20; ++i) train(1000, 64);
  EXPECT_EQ(engine.tables().Size("t").value(), 64u);
  ASSERT_TRUE(before.Apply(before.Gradients(1)).ok());
  EXPECT_EQ(engine.tables().Size("t").value(), 65u);

  spec.limits.emplace().max_rows = 160;
  ASSERT_TRUE(engine.tables().Create(spec, GetParam().options).ok());
  for (int i = 0; i < 20; ++i) train(2000 + 100 * i, 100);
  EXPECT_LE(engine.tables().Size("t").value(), 160u);
  EXPECT_GE(engine.tables().Size("t").value(), 120u) << "keys do not fall evenly on the partitions";
  spec.limits.reset();
  ASSERT_TRUE(engine.tables().Create(spec, GetParam().options).ok()) << "a spec without limits keeps them";
  train(9000, 300);
  EXPECT_LE(engine.tables().Size("t").value(), 160u);
  spec.limits = TableLimits();
  ASSERT_TRUE(engine.tables().Create(spec, GetParam().options).ok());
  train(9000, 1000);
  EXPECT_GE(engine.tables().Size("t").value(), 1000u);
}

// Partitions without pushes, and tables without further training.
TEST_P(EngineTest, LimitsReachEveryPartition) {
  uint32_t now = 1700000000;
  Engine engine("aging", GetParam().threads, [&now] { return now; });
  for (const char* name : {"old", "new"}) {
    TableSpec spec = Spec(name);
    spec.limits.emplace().ttl = 100;
    ASSERT_TRUE(engine.tables().Create(spec, GetParam().options).ok());
  }
  ASSERT_TRUE(Train(&engine, {{"old", Range(0, 300)}}).ok());
  ASSERT_TRUE(engine.caches().Flush().ok());
  now += 100;
  for (uint32_t i = 0; i < LocalService::kDefaultPartitions; ++i) {
    ASSERT_TRUE(Train(&engine, {{"new", {1}}}).ok());
    ASSERT_TRUE(engine.caches().Flush().ok());
  }
  EXPECT_EQ(engine.tables().Size("old").value(), 0u);
  EXPECT_EQ(engine.tables().Size("new").value(), 1u);
}

TEST_P(EngineTest, MemoryThatEndsLeavesTheTableConsistent) {
  Create(Spec("t"));
  const std::vector<int64_t> ids = Range(0, 3000);
  int failures = 0;
  // Memory suffices a little longer at every attempt, until the call succeeds.
  for (size_t room = 0;; room += 20000) {
    StepOf call(&engine_, {{"t", ids}});
    Status lookup, status;
    ASSERT_TRUE(FitsIn(room, [&] {
      status = lookup = call.Lookup(true);
      if (lookup.ok()) status = call.Apply(call.Gradients(1));
    }));
    if (status.ok()) break;
    ++failures;
    ASSERT_EQ(status.code(), Code::kResourceExhausted) << status.message();
    // Behind a cache memory may also be exhausted after the ticks, during sending: then they are kept, not
    // undone.
    if (lookup.ok() && status.message().find("are kept") != std::string::npos) break;
    ASSERT_EQ(engine_.tables().Size("t").value(), 0u);
  }
  EXPECT_GT(failures, 0);
  StepOf call(&engine_, {{"t", ids}});
  ASSERT_TRUE(call.Lookup(false).ok());
  for (float value : call.rows[0]) ASSERT_EQ(value, -1);
}

TEST_P(EngineTest, ThreadsShareATable) {
  Create(Spec("t"));
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([this, t] {
      for (int step = 0; step < 50; ++step) {
        // A thread that rests while the others keep KeptGradients::kSlots gradients has lost its own.
        Status applied;
        do {
          StepOf call(&engine_, {{"t", {t, 100, step % 7, 100}}});
          ASSERT_TRUE(call.Lookup(true).ok());
          applied = call.Apply(call.Gradients(1));
        } while (applied.code() == Code::kFailedPrecondition);
        ASSERT_TRUE(applied.ok()) << applied.message();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  StepOf call(&engine_, {{"t", {100}}});
  ASSERT_TRUE(call.Lookup(false).ok());
  EXPECT_EQ(call.rows[0][0], -2 * 3 * 50);
}

TEST(EngineErrors, MoreIdsThanACallHolds) {
  Engine engine("e");
  ASSERT_TRUE(engine.tables().Create(Spec("t"), {}).ok());
  const int64_t id = 0;
  const TablePtr table = engine.tables().Find("t").value();
  const FeatureIds features[] = {{0, Span<const int64_t>(&id, size_t{1} << 31), std::nullopt},
                                 {0, Span<const int64_t>(&id, size_t{1} << 31), std::nullopt}};
  float* const out[] = {nullptr, nullptr};
  EXPECT_TRUE(
      Fails(engine.steps().Lookup({Span<const TablePtr>(&table, 1), Span<const FeatureIds>(features, 2)},
                                  Span<float* const>(out, 2), nullptr),
            Code::kInvalidArgument, "a lookup of 4294967296 ids; at most 4294967294"));
}

TEST(EngineErrors, DroppedTableIsAnError) {
  Engine engine("e");
  ASSERT_TRUE(engine.tables().Create(Spec("t"), {}).ok());
  StepOf call(&engine, {{"t", {1}}});
  ASSERT_TRUE(call.Lookup(true).ok());
  ASSERT_TRUE(engine.tables().Drop("t").ok());
  EXPECT_EQ(call.Apply(call.Gradients(1)).code(), Code::kFailedPrecondition);
  EXPECT_TRUE(Fails(call.Lookup(true), Code::kFailedPrecondition, "table 't' was dropped"));
}

TEST(EngineDirect, SumsDoNotDependOnThreads) {
  std::mt19937_64 random(2);
  std::vector<int64_t> ids(50000);
  for (int64_t& id : ids) id = static_cast<int64_t>(random() % 300);
  std::vector<float> gradients(ids.size() * kDim);
  for (float& g : gradients) g = std::normal_distribution<float>()(random);
  std::vector<std::vector<float>> results;
  for (size_t threads : {1, 2, 4}) {
    Engine engine("e", threads);
    ASSERT_TRUE(engine.tables().Create(Spec("t", "adagrad"), {}).ok());
    StepOf call(&engine, {{"t", ids}});
    for (int step = 0; step < 3; ++step) {
      ASSERT_TRUE(call.Lookup(true).ok());
      ASSERT_TRUE(call.Apply({gradients}).ok());
    }
    ASSERT_TRUE(call.Lookup(false).ok());
    results.push_back(call.rows[0]);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

}  // namespace
}  // namespace het
