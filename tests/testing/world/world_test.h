// The fixture of the named protocol tests: a world whose errors fail the test at its end.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/testing/keys.h"
#include "tests/testing/status.h"
#include "tests/testing/world/operator.h"
#include "tests/testing/world/world.h"

namespace het::testing {

WorldConfig Bounded(int64_t bound, size_t capacity = 1000);
inline WorldConfig WithWorkers(uint32_t workers, WorldConfig config) {
  config.workers = workers;
  return config;
}
inline WorldConfig WithTables(uint32_t tables, WorldConfig config) {
  config.tables = tables;
  return config;
}

class WorldTest : public ::testing::Test {
 protected:
  void Make(const WorldConfig& config);
  void TearDown() override;
  virtual void Check();

  World& world() { return *world_; }
  Operator& operators() { return *operator_; }
  FaultyTransport& net(size_t w = 0) { return world_->transport(w); }
  TableCache* cache(size_t w = 0) { return world_->client(w).cache(world_->schema(0)->id()); }
  const Session& session(size_t w = 0) { return world_->client(w).session(0); }
  const PushLog& log(size_t w = 0) { return session(w).log(); }
  TableKey At(Key key) { return {world_->schema(0)->id(), key}; }

  std::unique_ptr<TestStep> Read(size_t w, const std::vector<Key>& keys, bool training = true);
  void Write(size_t w, TestStep* step);
  void Train(size_t w, const std::vector<Key>& keys) { Write(w, Read(w, keys).get()); }
  void Drained();
  // Worker w's requests since recording began, or since the last call.
  std::vector<Request> Sent(size_t w);

 private:
  std::unique_ptr<World> world_;
  std::unique_ptr<Operator> operator_;
};

}  // namespace het::testing
