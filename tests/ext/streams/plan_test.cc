// Window::Plan: steps with it equal steps without it, at a store in this process that is used like a server.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "het_tf/core/engine/engine.h"
#include "het_tf/core/store/local_service.h"
#include "het_tf/core/store/local_store.h"
#include "het_tf/core/store/local_transport.h"
#include "het_tf/ext/streams/cc/window.h"
#include "tests/testing/keep_and_apply.h"
#include "tests/testing/random.h"
#include "tests/testing/table_specs.h"

namespace het::testing {
namespace {

constexpr uint32_t kDim = 2;

class EnginePlanTest : public ::testing::Test {
 protected:
  // remote: behind a cache with these bounds; else in the engine itself.
  void Make(bool remote, Bound pull = 3) {
    if (remote) {
      ClientConfig config;
      config.notice = [this](const std::string& text) { notices_.push_back(text); };
      engine_ = std::make_unique<Engine>("", 1, std::make_unique<LocalStore>(&service_),
                                         std::make_unique<LocalTransport>(&service_), config);
    } else {
      engine_ = std::make_unique<Engine>("");
    }
    TableOptions options;
    if (remote) {
      options.cache = CacheConfig();
      options.cache->capacity = 40;
      options.cache->pull_bound = pull;
      options.cache->push_bound = 0;
      options.cache->policy = Policy::kLru;
    }
    ASSERT_TRUE(engine_->tables().Create(NewSpec("t", kDim, "sgd", {"zeros", 0, 0}), options).ok());
    table_ = engine_->tables().Find("t").value();
  }
  BatchCall Call(const std::vector<int64_t>& ids) {
    feature_ = {0, Span<const int64_t>(ids.data(), ids.size()), std::nullopt};
    return {Span<const TablePtr>(&table_, 1), Span<const FeatureIds>(&feature_, 1), 1};
  }
  void Plan(const std::vector<int64_t>& ids) {
    const FeatureIds feature{0, Span<const int64_t>(ids.data(), ids.size()), std::nullopt};
    const Status status =
        Window::Of(engine_->lookahead())
            .Plan({Span<const TablePtr>(&table_, 1), Span<const FeatureIds>(&feature, 1), 1}, 8);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  // Gives each id a tick of 1; returns the rows of the lookup.
  std::vector<float> Step(const std::vector<int64_t>& ids) {
    std::vector<float> rows(ids.size() * kDim);
    float* const out[] = {rows.data()};
    uint64_t token = 0;
    EXPECT_TRUE(engine_->steps().Lookup(Call(ids), Span<float* const>(out, 1), &token).ok());
    const std::vector<float> ones(rows.size(), -1);
    EXPECT_TRUE(KeepAndApply(&engine_->steps(), Call(ids), token, ones).ok());
    return rows;
  }
  int64_t planned() { return table_->planned.load(); }

  LocalService service_{4, 1, [] { return 0; }};
  std::unique_ptr<Engine> engine_;
  TablePtr table_;
  FeatureIds feature_;
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
      service_.DropTable(table_->schema->id());
    }
    EXPECT_EQ(found[0], found[1]) << remote;
  }
}

TEST_F(EnginePlanTest, PullBoundZeroDisablesEarlyLookups) {
  for (const int64_t pull : {0, 1}) {
    Make(/*remote=*/true, pull);
    Step({1});
    const uint64_t before = engine_->tables().Stats("t").value().cache->counters.reads;
    Plan({1, 2});
    EXPECT_EQ(engine_->tables().Stats("t").value().cache->counters.reads - before, pull == 0 ? 0u : 2u);
    Step({1, 2});
    EXPECT_EQ(planned(), 1);
    service_.DropTable(table_->schema->id());
  }
}

TEST_F(EnginePlanTest, AReadWithoutTrainingTakesNoPlan) {
  Make(/*remote=*/false);
  Plan({5});
  std::vector<float> row(kDim);
  float* const out[] = {row.data()};
  ASSERT_TRUE(engine_->steps().Lookup(Call({5}), Span<float* const>(out, 1), nullptr).ok());
  EXPECT_EQ(planned(), 0);
  Step({5});
  EXPECT_EQ(planned(), 1);
}

TEST_F(EnginePlanTest, RecreatedTableHasNoPlans) {
  Make(/*remote=*/true);
  const TableSpec spec = table_->schema->spec();
  const TableOptions options = table_->options;
  Plan({1, 2});
  ASSERT_TRUE(engine_->tables().Drop("t").ok());
  ASSERT_TRUE(engine_->tables().Create(spec, options).ok());
  table_ = engine_->tables().Find("t").value();
  EXPECT_EQ(Step({1, 2}), std::vector<float>(4, 0));
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
      misses[plans] = engine_->tables().Stats("t").value().cache->counters.miss_pull;
      service_.DropTable(table_->schema->id());
    }
    EXPECT_EQ(misses[0], 1200u);
    EXPECT_LT(misses[1], 700u) << early;
  }
}

// Defects: a cache that thrashes silently, or a line for each of its batches.
TEST_F(EnginePlanTest, SmallCacheIsReportedOnce) {
  Make(/*remote=*/true);
  std::vector<int64_t> ids(40);
  std::iota(ids.begin(), ids.end(), 0);
  Plan(ids);
  EXPECT_TRUE(notices_.empty());
  ids.push_back(40);
  Plan(ids);
  Plan(ids);
  ASSERT_EQ(notices_.size(), 1u);
  EXPECT_NE(notices_[0].find("a batch has 41 rows of table 't', whose cache holds 40"), std::string::npos);
}

// For TSan: a pipeline plans while steps run, and another thread flushes.
TEST_F(EnginePlanTest, ThreadsPlanTrainAndFlush) {
  Make(/*remote=*/true);
  const auto rounds = static_cast<int64_t>(50 * Scaled(20));
  std::atomic<int64_t> done{0};
  std::thread pipeline([&] {
    for (int64_t i = 0; i < rounds; ++i) {
      Plan({i % 50, 77, 100 + i % 7});
      while (i - done.load() > 4) std::this_thread::yield();
    }
  });
  std::thread flusher([&] {
    while (done.load() < rounds) EXPECT_TRUE(engine_->caches().Flush().ok());
  });
  for (int64_t i = 0; i < rounds; ++i) {
    Step({i % 50, 77, 100 + i % 7});
    done.store(i + 1);
  }
  pipeline.join();
  flusher.join();
  EXPECT_EQ(Step({77})[0], static_cast<float>(rounds));
}

}  // namespace
}  // namespace het::testing
