// Two classes of rows (store/row_classes.h) in a cache on a device, beside one in host memory: the same
// bounds for the same rows, and the same figures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "het_tf/core/client/client.h"
#include "het_tf/core/device/device_table.h"
#include "het_tf/core/store/local_store.h"
#include "het_tf/core/store/local_transport.h"
#include "tests/cpp/testing/device/device_engine.h"

namespace het::testing {
namespace {

constexpr int64_t kLoose = 20;
constexpr HotRows kHot{64, 3, 2, 0};

// A worker of a store of its own.
class Worker {
 public:
  explicit Worker(const std::string& device, const TableOptions& options)
      : service_(4, 0),
        engine_(device, 1, std::make_unique<LocalStore>(&service_),
                std::make_unique<LocalTransport>(&service_), ClientConfig()) {
    const Status created = engine_.CreateTable(SpecOf("t", 2, "row_wise_adagrad"), options);
    EXPECT_TRUE(created.ok()) << created.message();
  }
  void Train(const std::vector<Key>& ids, int times = 1, float rate = 1) {
    for (int i = 0; i < times; ++i) {
      StepOf step(&engine_, {{"t", ids}});
      ASSERT_TRUE(step.Lookup(true).ok());
      const Status applied = step.Apply(step.Gradients(-1), rate);
      ASSERT_TRUE(applied.ok()) << applied.message();
    }
  }
  // The store judges the row.
  void Judge(Key key, bool hot) {
    const uint32_t p = PartitionOf(HashKey(key, service_.hash_seed()), service_.partitions());
    service_.WithPartition(p, [&](Partition& partition) {
      Shard* const shard = partition.Find(engine_.Find("t").value()->schema->id());
      shard->classes().Set(shard->rows().Find(key), hot);
    });
  }
  Engine& engine() { return engine_; }
  nlohmann::json Stats() { return CacheStats(&engine_, "t"); }

 private:
  LocalService service_;
  Engine engine_;
};

class DeviceHotRows : public DeviceEngine {
 protected:
  // On a device, and in host memory. capacity 32 is one bucket.
  void Make(const HotRows& hot, size_t capacity = 1000) {
    workers_.clear();
    for (const char* device : {"gpu", "cpu"})
      workers_.push_back(std::make_unique<Worker>(device, CacheOf(device, capacity, kLoose, kLoose, hot)));
  }
  std::vector<std::unique_ptr<Worker>> workers_;
};

// The row comes as one that is not judged yet; then the store says otherwise, in answers to its pushes.
TEST_F(DeviceHotRows, TheClassThatTheStoreSaysDecides) {
  Make(kHot);
  for (auto& worker : workers_) {
    worker->Train({1}, 2);
    EXPECT_EQ(worker->Stats()["bound_push"], 0);
    EXPECT_EQ(worker->Stats()["hot_rows"], 1);
    worker->Train({1});
    ASSERT_EQ(worker->Stats()["bound_push"], 1) << "else the store has no row to judge";
    EXPECT_EQ(worker->Stats()["hot_ticks"], 3);
    EXPECT_EQ(worker->Stats()["hot_reads"], 2) << "the first one missed";
    worker->Judge(1, false);
    worker->Train({1}, 3);
    EXPECT_EQ(worker->Stats()["bound_push"], 2);
    EXPECT_EQ(worker->Stats()["hot_rows"], 0);
    worker->Train({1}, kLoose - 1);
    EXPECT_EQ(worker->Stats()["bound_push"], 2);
    worker->Judge(1, true);
    worker->Train({1});
    EXPECT_EQ(worker->Stats()["bound_push"], 3);
    worker->Train({1}, 3);
    EXPECT_EQ(worker->Stats()["bound_push"], 4);
    EXPECT_EQ(worker->Stats()["hot_ticks"], 9);
    EXPECT_EQ(worker->Stats()["hot_rows"], 1);
  }
}

// hot="auto": the bounds are those of the step's rate, from this step on.
TEST_F(DeviceHotRows, BoundsFollowTheLearningRate) {
  HotRows hot = kHot;
  hot.workers = 8;
  Make(hot);
  for (auto& worker : workers_) {
    worker->Train({1}, 10, 0.0063f);  // a push bound of 10: pushed one earlier
    EXPECT_EQ(worker->Stats()["bound_push"], 1);
    worker->Train({1}, 5, 0.0063f);
    EXPECT_EQ(worker->Stats()["bound_push"], 1);
    worker->Train({1}, 1, 0.0145f);  // of 4
    EXPECT_EQ(worker->Stats()["bound_push"], 2);
    worker->Train({1}, 8, 0.0025f);  // of 20, the table's
    EXPECT_EQ(worker->Stats()["bound_push"], 2);
  }
}

// Rows that stay with the call leave with their tick: as victims, unless it is past the bound of their class.
TEST_F(DeviceHotRows, WhatLeavesWithItsTickIsCountedByClass) {
  std::vector<Key> ids(40);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<Key>(i);
  for (const int64_t push : {0, 1}) {
    HotRows hot = kHot;
    hot.push_bound = push;
    Make(hot, 32);
    workers_[0]->Train(ids);
    const nlohmann::json stats = workers_[0]->Stats();
    EXPECT_EQ(stats["bound_push"], push == 0 ? 40 : 0);
    EXPECT_EQ(stats["evict_push"], push == 0 ? 0 : 8);
  }
}

// Rows of all rates, of which some are judged hot, others rare: both caches know the same of them at any
// time.
TEST_F(DeviceHotRows, TheFiguresAreThoseOfACacheInHostMemory) {
  Make(kHot);
  std::mt19937_64 random(5);
  for (int step = 0; step < 1200; ++step) {
    std::vector<Key> ids;
    for (Key id = 0; id < 40; ++id) {
      if (random() % static_cast<uint64_t>(4 * (id + 1)) == 0) ids.push_back(id);
    }
    for (auto& worker : workers_) worker->Train(ids);
    if (step % 20 != 19) continue;
    const nlohmann::json device = workers_[0]->Stats(), host = workers_[1]->Stats();
    for (const char* figure : {"hot_rows", "hot_reads", "hot_ticks", "reads", "ticks", "bound_push",
                               "unsent_rows", "hot_staleness"}) {
      ASSERT_EQ(device[figure], host[figure]) << figure << ", step " << step;
    }
  }
  const nlohmann::json stats = workers_[0]->Stats();
  EXPECT_GT(stats["hot_rows"], 4);
  EXPECT_LT(stats["hot_rows"], 30);
  EXPECT_LT(stats["hot_ticks"], stats["ticks"]);
}

// What is told of a row twice before the device can hear of it; and what the device did not hear.
std::vector<std::pair<int, Key>> heard;
int answer_to_classes = HET_DEV_OK;

TEST_F(DeviceHotRows, OfARowTheClassThatWasSaidLastIsTold) {
  heard.clear();
  DeviceLibrary library = *DeviceLibrary::Get().value();
  library.HetDevSetTight = [](HetDevContext*, HetDevTable*, int tight, const int64_t* keys, uint64_t n,
                              HetDevStream) {
    for (uint64_t i = 0; i < n; ++i) heard.push_back({tight, keys[i]});
    return answer_to_classes;
  };
  DeviceTable table(TableSchema::Create(SpecOf("t", 2)).value(), 4);
  for (const auto& [key, tight] :
       {std::pair<Key, bool>(1, true), {2, false}, {3, true}, {1, false}, {2, true}})
    table.SetTight(key, tight);
  bool went = false;
  answer_to_classes = HET_DEV_FAILED;
  EXPECT_EQ(table.CatchUp(library, nullptr, nullptr, &went), HET_DEV_FAILED);
  heard.clear();
  answer_to_classes = HET_DEV_OK;
  EXPECT_EQ(table.CatchUp(library, nullptr, nullptr, &went), HET_DEV_OK);
  EXPECT_EQ(heard, (std::vector<std::pair<int, Key>>{{0, 1}, {1, 2}, {1, 3}}));
  EXPECT_EQ(table.CatchUp(library, nullptr, nullptr, &went), HET_DEV_OK);
  EXPECT_EQ(heard.size(), 3u);
  EXPECT_FALSE(went) << "the rows are there";
}

TEST_F(DeviceHotRows, WithoutThemThereIsOneClass) {
  Create("t", 2, CacheOf("gpu", 100, kLoose, 2));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(testing::Train(&engine_, {{"t", {1}}}).ok());
  const nlohmann::json stats = CacheStats(&engine_, "t");
  EXPECT_EQ(stats.count("hot_rows"), 0u);
  EXPECT_EQ(stats["hot_ticks"], 0);
  EXPECT_EQ(stats["bound_push"], 1);
}

}  // namespace
}  // namespace het::testing
