#include "tests/testing/world/world_test.h"

#include <memory>
#include <vector>

namespace het::testing {

WorldConfig Bounded(int64_t bound, size_t capacity) {
  WorldConfig config;
  config.cache.pull_bound = bound;
  config.cache.push_bound = bound;
  config.cache.capacity = capacity;
  config.cache.policy = Policy::kLru;
  config.cache.checks = Checks::kAsked;
  return config;
}

void WorldTest::Make(const WorldConfig& config) {
  if (world_ != nullptr) Check();
  world_ = std::make_unique<World>(config);
  operator_ = std::make_unique<Operator>(world_.get());
}

void WorldTest::TearDown() {
  if (world_ != nullptr) Check();
}

void WorldTest::Check() {
  world_->CheckConservation();
  EXPECT_EQ(world_->FirstError(), "");
}

std::unique_ptr<TestStep> WorldTest::Read(size_t w, const std::vector<Key>& keys, bool training) {
  auto step = world_->NewStep({keys});
  EXPECT_TRUE(Ok(world_->Read(w, step.get(), training)));
  return step;
}

void WorldTest::Write(size_t w, TestStep* step) { EXPECT_TRUE(Ok(world_->Write(w, step))); }

void WorldTest::Drained() {
  EXPECT_TRUE(Ok(world_->Drain()));
  world_->CheckDrained();
}

std::vector<Request> WorldTest::Sent(size_t w) {
  std::vector<Request> requests;
  for (const OutFrame& frame : net(w).recorded) {
    RequestParts parts;
    EXPECT_TRUE(parts.Open(frame.view()).ok());
    while (parts.left() > 0) {
      requests.emplace_back();
      EXPECT_TRUE(parts.Next(&requests.back()).ok());
    }
  }
  net(w).recorded.clear();
  return requests;
}

}  // namespace het::testing
