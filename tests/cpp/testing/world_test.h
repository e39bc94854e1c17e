// The fixture of the named protocol tests: a world whose checks are looked at when the test ends.
#ifndef HET_TESTS_CPP_TESTING_WORLD_TEST_H_
#define HET_TESTS_CPP_TESTING_WORLD_TEST_H_

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/cpp/testing/world.h"

namespace het::testing {

inline WorldConfig Bounded(int64_t bound, size_t capacity = 1000) {
  WorldConfig config;
  config.cache.pull_bound = bound;
  config.cache.push_bound = bound;
  config.cache.capacity = capacity;
  return config;
}

// No row outlives its step, and what it leaves unsent goes into a frame at once: pushes that nobody waits
// for.
inline WorldConfig PushesNobodyWaitsFor() {
  WorldConfig config = Bounded(3, 0);
  config.cache.write_back_rows = 0;
  return config;
}

class WorldTest : public ::testing::Test {
 protected:
  void Make(const WorldConfig& config) {
    if (world_ != nullptr) Check();
    world_ = std::make_unique<World>(config);
  }
  // The test changed the store behind the oracle's back: no more checks of this world.
  void Abandon() { world_.reset(); }
  void TearDown() override {
    if (world_ != nullptr) Check();
  }
  void Check() {
    world_->CheckConservation();
    EXPECT_EQ(world_->FirstError(), "");
  }

  World& world() { return *world_; }
  FaultyTransport& net(size_t w = 0) { return world_->transport(w); }
  TableCache* cache(size_t w = 0) { return world_->client(w).cache(world_->schema(0)->id()); }
  const Link& link(size_t w = 0) { return world_->client(w).link(0); }
  TableKey At(Key key) { return {world_->schema(0)->id(), key}; }

  std::unique_ptr<TestStep> Read(size_t w, const std::vector<Key>& keys, bool training = true) {
    auto step = world_->NewStep({keys});
    const Status status = world_->Read(w, step.get(), training);
    EXPECT_TRUE(status.ok()) << status.message();
    return step;
  }
  void Write(size_t w, TestStep* step) {
    const Status status = world_->Write(w, step);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  void Train(size_t w, const std::vector<Key>& keys) { Write(w, Read(w, keys).get()); }
  void Drained() {
    const Status status = world_->Drain();
    EXPECT_TRUE(status.ok()) << status.message();
    world_->CheckDrained();
  }
  // What worker w has sent since recording began, or since the last call.
  std::vector<Request> Sent(size_t w) {
    std::vector<Request> requests;
    for (auto& [p, bytes] : net(w).recorded) {
      RequestParts parts;
      EXPECT_TRUE(parts.Open(Span<const uint8_t>(bytes.data(), bytes.size())).ok());
      while (parts.left() > 0) {
        requests.emplace_back();
        EXPECT_TRUE(parts.Next(&requests.back()).ok());
      }
    }
    net(w).recorded.clear();
    return requests;
  }

 private:
  std::unique_ptr<World> world_;
};

}  // namespace het::testing

#endif  // HET_TESTS_CPP_TESTING_WORLD_TEST_H_
