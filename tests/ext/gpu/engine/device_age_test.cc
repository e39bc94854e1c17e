// Bounds by the age of a row (wire/bound.h) in a cache on a device and in one in host memory: both hold back
// the same updates, and have the same counters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "het_tf/core/client/client.h"
#include "het_tf/core/store/local_store.h"
#include "het_tf/core/store/local_transport.h"
#include "tests/testing/device/device_engine.h"

namespace het::testing {
namespace {

constexpr int64_t kPull = 20;

// A worker with a store of its own.
class Worker {
 public:
  explicit Worker(const TableOptions& options)
      : service_(4, 0),
        engine_(options.cache->on_device ? "gpu" : "cpu", 1, std::make_unique<LocalStore>(&service_),
                std::make_unique<LocalTransport>(&service_), ClientConfig()) {
    const Status created = engine_.tables().Create(SpecOf("t", 2, "row_wise_adagrad"), options);
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
  // Makes one worker on a device, and one in host memory.
  void Make(TableOptions options) {
    workers_.clear();
    for (const bool on_device : {true, false}) {
      options.cache->on_device = on_device;
      workers_.push_back(std::make_unique<Worker>(options));
    }
  }
  std::vector<std::unique_ptr<Worker>> workers_;
};

TEST_F(DeviceAge, OldRowsHoldBackMoreTicks) {
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

// Rows that stay with the call are exported with their tick: counted as evictions, unless past their bound.
TEST_F(DeviceAge, ExportsWithATickAreCountedByBound) {
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
  for (const uint32_t workers : {1, 4}) {
    TableOptions options = CacheOf("gpu", 1000, 0, 0);
    options.cache->staleness = kPull;
    options.cache->workers = workers;
    Make(options);
    for (auto& worker : workers_) {
      SCOPED_TRACE(worker->engine().name());
      worker->Train({1}, 3);
      EXPECT_EQ(worker->Stats()["bound_push"], workers == 1 ? 0 : 3) << "none reads it, or it is young";
    }
  }
}

}  // namespace
}  // namespace het::testing
