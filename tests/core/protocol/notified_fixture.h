// The fixture for checks="notified": workers that subscribe to their rows.
#pragma once

#include "het_tf/core/store/local_store.h"
#include "tests/testing/world/world_test.h"

namespace het::testing {

class Notified : public WorldTest {
 protected:
  static constexpr Key kOther = 99;  // a row without ticks

  using WorldTest::Make;
  static WorldConfig NotifiedConfig(int64_t bound) {
    WorldConfig config = Bounded(bound);
    config.workers = 2;
    config.cache.push_bound = 0;
    config.cache.checks = Checks::kNotified;
    config.client.durability = Durability::kCheckpoint;
    return config;
  }
  void Make(int64_t bound) { Make(NotifiedConfig(bound)); }
  // Until worker w is subscribed to these keys, and knows the epochs.
  void Hold(size_t w, const std::vector<Key>& keys) { Train(w, keys); }
  // Worker w gets its notifications.
  void Hear(size_t w) {
    Read(w, {kOther});
    world().client(w).Progress(0);
  }
  Subscribers& subscribers() {
    return *world().service().WithPartition(0, [](Partition& p) { return &p.subscribers(); });
  }
  uint64_t checks(size_t w = 0) { return cache(w)->counters().checks; }
  // Ticks of worker `of` that worker w sees.
  int64_t Seen(size_t w, Key key, size_t of) {
    return static_cast<int64_t>(kInitial - Read(w, {key})->Value(At(key).first, key)[of]);
  }
  int64_t SeenThen(size_t w, Key key, size_t of) {
    Hear(w);
    return Seen(w, key, of);
  }
  void Finish(size_t w, ReadOp* op, TestStep* step) {
    while (!op->done()) world().client(w).Progress(0.05);
    ASSERT_TRUE(world().FinishRead(w, op, step).ok());
  }
};

}  // namespace het::testing
