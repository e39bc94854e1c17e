// Bounds by the age of a row (wire/bound.h) in a cache on a device, beside one in host memory: the same
// updates are held back, and the figures are the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "het_tf/core/client/client.h"
#include "het_tf/core/store/local_store.h"
#include "het_tf/core/store/local_transport.h"
#include "tests/cpp/testing/device/device_engine.h"

namespace het::testing {
namespace {

constexpr int64_t kPull = 20;

// A worker of a store of its own.
class Worker {
 public:
  explicit Worker(const TableOptions& options)
      : service_(4, 0),
        engine_(options.cache->on_device ? "gpu" : "cpu", 1, std::make_unique<LocalStore>(&service_),
                std::make_unique<LocalTransport>(&service_), ClientConfig()) {
    const Status created = engine_.CreateTable(SpecOf("t", 2, "row_wise_adagrad"), options);
    EXPECT_TRUE(created.ok()) << created.message();
  }
  void Train(const std::vector<Key>& ids, int times = 1) {
    for (int i = 0; i < times; ++i) {
      const Status trained = testing::Train(&engine_, {{"t", ids}});
      ASSERT_TRUE(trained.ok()) << trained.message();
    }
  }
  Engine& engine() { return engine_; }
  nlohmann::json Stats() { return CacheStats(&engine_, "t"); }

 private:
  LocalService service_;
  Engine engine_;
};

class DeviceAge : public DeviceEngine {
 protected:
  // On a device, and in host memory.
  void Make(TableOptions options) {
    workers_.clear();
    for (const bool on_device : {true, false}) {
      options.cache->on_device = on_device;
      workers_.push_back(std::make_unique<Worker>(options));
    }
  }
  std::vector<std::unique_ptr<Worker>> workers_;
};

TEST_F(DeviceAge, AYoungRowsUpdateLeavesAtOnceAndAnOldOnesIsHeldBack) {
  Make(CacheOf("gpu", 1000, kPull, Bound(2, 10)));
  for (auto& worker : workers_) {
    SCOPED_TRACE(worker->engine().name());
    worker->Train({1}, 9);
    EXPECT_EQ(worker->Stats()["bound_push"], 9);
    worker->Train({1});
    EXPECT_EQ(worker->Stats()["bound_push"], 9) << "from an age of 10 on, one tick may wait";
    EXPECT_EQ(worker->Stats()["unsent_rows"], 1);
    worker->Train({1}, 9);
    EXPECT_EQ(worker->Stats()["bound_push"], 9 + 5);
    worker->Train({1}, 2);
    EXPECT_EQ(worker->Stats()["bound_push"], 9 + 5) << "and from 20 on, two";
    worker->Train({1, 2}, 1);
    EXPECT_EQ(worker->Stats()["bound_push"], 9 + 5 + 2) << "the third of row 1, the first of row 2";
    worker->Train({1}, 300);
    EXPECT_EQ(worker->Stats()["bound_push"], 9 + 5 + 2 + 100) << "never more than two";
  }
}

// Rows that stay with the call leave with their tick: as victims, unless it is past their bound.
TEST_F(DeviceAge, WhatLeavesWithItsTickIsCountedByItsBound) {
  std::vector<Key> ids(40);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<Key>(i);
  for (const uint32_t every : {1, 2}) {
    Worker worker(CacheOf("gpu", /*capacity: one bucket*/ 32, kPull, Bound(4, every)));
    worker.Train(ids);
    EXPECT_EQ(worker.Stats()["bound_push"], every == 2 ? 40 : 0);
    EXPECT_EQ(worker.Stats()["evict_push"], every == 2 ? 0 : 8);
  }
}

TEST_F(DeviceAge, BoundsFollowTheNumberOfWorkers) {
  TableOptions options = CacheOf("gpu", 1000, 0, 0);
  options.cache->staleness = kPull;
  Make(options);
  for (auto& worker : workers_) {
    SCOPED_TRACE(worker->engine().name());
    worker->Train({1}, 3);
    EXPECT_EQ(worker->Stats()["bound_push"], 0) << "nobody else reads it";
    ASSERT_TRUE(worker->engine().SetWorkers("t", 4).ok());
    EXPECT_EQ(worker->Stats()["unsent_rows"], 0);
    const int flushed = worker->Stats()["bound_push"];
    worker->Train({1}, 3);
    EXPECT_EQ(worker->Stats()["bound_push"], flushed + 3) << "it is young";
  }
}

// Rows of all rates, and so of all ages: both caches know the same of them at any time.
TEST_F(DeviceAge, TheFiguresAreThoseOfACacheInHostMemory) {
  Make(CacheOf("gpu", 1000, Bound(kPull, 4), Bound(6, 7)));
  std::mt19937_64 random(5);
  for (int step = 0; step < 600; ++step) {
    std::vector<Key> ids;
    for (Key id = 0; id < 40; ++id) {
      if (random() % static_cast<uint64_t>(4 * (id + 1)) == 0) ids.push_back(id);
    }
    for (auto& worker : workers_) worker->Train(ids);
    if (step % 20 != 19) continue;
    const nlohmann::json device = workers_[0]->Stats(), host = workers_[1]->Stats();
    for (const char* figure :
         {"reads", "ticks", "bound_push", "unsent_rows", "staleness", "pull_bound", "push_bound"}) {
      ASSERT_EQ(device[figure], host[figure]) << figure << ", step " << step;
    }
  }
  EXPECT_GT(workers_[0]->Stats()["unsent_rows"], 4);
  EXPECT_GT(workers_[0]->Stats()["bound_push"], 100);
}

}  // namespace
}  // namespace het::testing
