// Bounds and subscriptions of a cache on a device: it holds back the updates that a cache in host memory
// holds back, and its lookups ask the store what that one asks.

#include <memory>

#include "het_tf/core/client/client.h"
#include "het_tf/core/store/local_store.h"
#include "het_tf/core/store/local_transport.h"
#include "tests/testing/device/device_engine.h"
#include "tests/testing/random.h"

namespace het::testing {
namespace {

// A worker with a store of its own, which another worker shares.
class Shared {
 public:
  explicit Shared(const TableOptions& options) : service_(1, 0) {
    TableOptions other = options;
    other.cache->on_device = false;
    other.cache->push_bound = 0;
    for (const TableOptions& of : {options, other}) {
      engines_.push_back(std::make_unique<Engine>("worker", 1, std::make_unique<LocalStore>(&service_),
                                                  std::make_unique<LocalTransport>(&service_),
                                                  ClientConfig()));
      EXPECT_TRUE(Ok(engines_.back()->tables().Create(SpecOf("t", 2), of)));
    }
  }
  Engine* engine(size_t w) { return engines_[w].get(); }
  // The store does not know any more which rows the workers hold.
  void Forget() {
    service_.WithPartition(0, [](Partition& partition) { partition.subscribers().Clear(); });
  }

 private:
  LocalService service_;
  std::vector<std::unique_ptr<Engine>> engines_;
};

using DevicesAlike = DeviceEngine;

// Defect: a cache on a device trusts, checks, fetches or pushes other rows than one in host memory does.
TEST_F(DevicesAlike, AsksWhatACacheInHostMemoryAsks) {
  int resets = 0;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    Random random(seed);
    std::vector<std::unique_ptr<Shared>> places;
    for (const char* device : {"gpu", "cpu"}) {
      const Bound push = seed % 2 == 0 ? Bound(static_cast<int64_t>(seed)) : Bound(8, 3);
      TableOptions options = CacheOf(device, 10000, seed % 3 == 0 ? Bound(4, 2) : Bound(3), push);
      options.cache->checks = Checks::kNotified;
      if (seed == 5) {  // the bounds follow the number of workers
        options.cache->staleness = 20;
        options.cache->workers = 4;
      }
      places.push_back(std::make_unique<Shared>(options));
    }
    for (int step = 0; step < 60; ++step) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", step " + std::to_string(step));
      std::vector<Key> ids, others;
      for (uint64_t n = 1 + random.Below(30); n > 0; --n) ids.push_back(static_cast<Key>(random.Below(40)));
      for (uint64_t n = random.Below(20); n > 0; --n) others.push_back(static_cast<Key>(random.Below(20)));
      const bool training = random.Chance(0.9), forgets = random.Chance(0.1);
      std::vector<StepOf> steps;
      for (const auto& place : places) {
        if (forgets) place->Forget();
        ASSERT_TRUE(Train(place->engine(1), {{"t", others}}).ok());
        steps.emplace_back(place->engine(0), std::vector<FeatureInput>{{"t", ids}});
        ASSERT_TRUE(steps.back().Lookup(training).ok());
        if (!training) continue;
        ASSERT_TRUE(steps.back().Apply(steps.back().Gradients(-1)).ok());
      }
      ASSERT_EQ(steps[0].rows, steps[1].rows);
      const nlohmann::json gpu = CacheStats(places[0]->engine(0), "t");
      const nlohmann::json cpu = CacheStats(places[1]->engine(0), "t");
      for (const char* counter :
           {"reads", "hits", "trusted", "checks", "update_pull", "miss_pull", "notified_rows",
            "subscription_resets", "bound_push", "unsent_rows", "inserts", "ticks", "rows"}) {
        ASSERT_EQ(gpu[counter], cpu[counter]) << counter;
      }
    }
    const nlohmann::json stats = CacheStats(places[0]->engine(0), "t");
    EXPECT_GT(stats["trusted"], 100);
    EXPECT_GT(stats["notified_rows"], 10);
    resets += stats["subscription_resets"].get<int>();
  }
  EXPECT_GT(resets, 5);
}

}  // namespace
}  // namespace het::testing
