// Window::Plan: steps with it equal steps without it, at a store in this process that is used like a server.

#include "tests/testing/engine_step.h"
#include "tests/testing/process.h"
#include "tests/testing/random.h"
#include "tests/testing/table_specs.h"

namespace het::testing {
namespace {

class EnginePlanTest : public ::testing::Test {
 protected:
  // remote: behind a cache with these bounds; else in the engine itself.
  void Make(bool remote, Bound pull = 3) {
    TableOptions options;
    std::shared_ptr<Engine> engine;
    if (remote) {
      ClientConfig config;
      config.notice = [this](const std::string& text) { notices_.push_back(text); };
      engine = std::make_shared<Engine>("", 1, std::make_unique<LocalStore>(&service_),
                                        std::make_unique<LocalTransport>(&service_), config);
      options = Cached(40, pull);
      options.cache->push_bound = 0;
      options.cache->policy = Policy::kLru;
    } else {
      engine = std::make_shared<Engine>("");
    }
    process_ =
        std::make_unique<Process>(engine, NewSpec("t", Process::kDim, "sgd", {"zeros", 0, 0}), options);
  }
  void Plan(const std::vector<int64_t>& ids) { process_->Plan(ids); }
  // Gives each id a tick of 1; returns the rows of the lookup.
  std::vector<float> Step(const std::vector<int64_t>& ids) {
    const std::vector<float> rows = process_->Lookup(ids);
    process_->Apply({ids, std::vector<float>(rows.size(), -1)}, 1);
    return rows;
  }
  int64_t planned() { return process_->table()->planned.load(); }
  Counters counters() { return process_->engine().tables().Stats("t").value().cache->counters; }
  void Drop() { service_.DropTable(process_->table()->schema->id()); }

  LocalService service_{4, 1, [] { return 0; }};
  std::unique_ptr<Process> process_;
  std::vector<std::string> notices_;
};

// Defects: a plan of another batch, a row of the wrong line, an own tick that a lookup misses.
TEST_F(EnginePlanTest, RowsAreThoseOfStepsWithoutIt) {
  for (const bool remote : {false, true}) {
    std::vector<std::vector<float>> found[2];
    for (int plans = 0; plans < 2; ++plans) {
      Make(remote);
      Random random(7);
      std::vector<std::vector<int64_t>> batches(100);
      for (auto& ids : batches) {
        for (int i = 0; i < 30; ++i) ids.push_back(random.Between(0, 99));
      }
      for (size_t t = 0; t < batches.size(); ++t) {
        if (plans && t + 3 < batches.size()) Plan(batches[t + 3]);
        found[plans].push_back(Step(batches[t]));
      }
      EXPECT_EQ(planned(), plans ? 97 : 0) << remote;
      Drop();
    }
    EXPECT_EQ(found[0], found[1]) << remote;
  }
}

TEST_F(EnginePlanTest, PullBoundZeroDisablesEarlyLookups) {
  for (const int64_t pull : {0, 1}) {
    Make(/*remote=*/true, pull);
    Step({1});
    const uint64_t before = counters().reads;
    Plan({1, 2});
    EXPECT_EQ(counters().reads - before, pull == 0 ? 0u : 2u);
    Step({1, 2});
    EXPECT_EQ(planned(), 1);
    Drop();
  }
}

TEST_F(EnginePlanTest, AReadWithoutTrainingTakesNoPlan) {
  Make(/*remote=*/false);
  Plan({5});
  EXPECT_EQ(process_->Value(5), 0);
  EXPECT_EQ(planned(), 0);
  Step({5});
  EXPECT_EQ(planned(), 1);
}

TEST_F(EnginePlanTest, RecreatedTableHasNoPlans) {
  Make(/*remote=*/true);
  Plan({1, 2});
  process_->Recreate();
  EXPECT_EQ(Step({1, 2}), std::vector<float>(2 * Process::kDim, 0));
  EXPECT_EQ(planned(), 0);
}

// A cycle longer than the cache, of which LRU keeps nothing. Defect: next uses do not reach the cache, of a
// waiting batch or of rows that no batch used before.
TEST_F(EnginePlanTest, CachesKeepTheRowsThatAreUsedNext) {
  for (const bool early : {false, true}) {
    uint64_t misses[2];
    for (const bool plans : {false, true}) {
      Make(/*remote=*/true, early ? 3 : 0);
      std::vector<std::vector<int64_t>> batches(120);
      for (size_t t = 0; t < batches.size(); ++t) {
        for (size_t i = 0; i < 10; ++i) batches[t].push_back(static_cast<int64_t>((10 * t + i) % 60));
      }
      for (size_t t = 0; t < batches.size(); ++t) {
        if (plans && t == 0) {
          for (size_t next = 0; next < 7; ++next) Plan(batches[next]);
        } else if (plans && t + 6 < batches.size()) {
          Plan(batches[t + 6]);
        }
        Step(batches[t]);
      }
      misses[plans] = counters().miss_pull;
      Drop();
    }
    EXPECT_EQ(misses[0], 1200u);
    EXPECT_LT(misses[1], 700u) << early;
  }
}

// Defects: a cache that thrashes silently, or a line for each of its batches.
TEST_F(EnginePlanTest, SmallCacheIsReportedOnce) {
  Make(/*remote=*/true);
  Plan(Range(0, 40));
  EXPECT_TRUE(notices_.empty());
  for (int i = 0; i < 2; ++i) Plan(Range(0, 41));
  ASSERT_EQ(notices_.size(), 1u);
  EXPECT_NE(notices_[0].find("a batch has 41 rows of table 't', whose cache holds 40"), std::string::npos);
}

}  // namespace
}  // namespace het::testing
