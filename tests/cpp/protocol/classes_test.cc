// Two classes of rows (store/row_classes.h): which bounds hold for a row, and how workers hear of it. Of
// caches in host memory, and of caches on devices, toys (testing/world/toy_device.h).
#include "tests/cpp/testing/world/world_test.h"

namespace het::testing {
namespace {

constexpr int64_t kLoose = 20;
constexpr int64_t kTightPull = 3;
constexpr int64_t kTightPush = 2;

class ClassesTest : public WorldTest, public ::testing::WithParamInterface<bool> {
 protected:
  void MakeWorld(uint32_t workers, const std::string& checks = "asked") {
    WorldConfig config = Bounded(kLoose);
    config.workers = workers;
    config.devices = GetParam() ? workers : 0;
    config.cache.hot = HotRows{8, kTightPull, kTightPush};
    config.cache.checks = checks;
    Make(config);
  }
  bool Heard(size_t w, Key key) {
    ToyDevice* const device = world().device(w);
    if (device == nullptr) return cache(w)->tight(cache(w)->lines().Find(key));
    device->DoWhatWasPutOff();
    return device->Find(At(key), 0)->tight;
  }
  uint64_t Unsent(size_t w, Key key) { return world().UnappliedTicks(w, At(key)); }
  void Train(size_t w, const std::vector<Key>& keys, int times = 1) {
    for (int i = 0; i < times; ++i) WorldTest::Train(w, keys);
  }
};

TEST_P(ClassesTest, ANewRowHasTheTighterBounds) {
  MakeWorld(1);
  Train(0, {1}, kTightPush);
  EXPECT_EQ(Unsent(0, 1), static_cast<uint64_t>(kTightPush));
  Train(0, {1});
  EXPECT_EQ(Unsent(0, 1), 0u);
}

// What the worker says of the row is wrong by then: the answer to its push puts it right.
TEST_P(ClassesTest, AWrongClassCostsOnePush) {
  MakeWorld(1);
  Train(0, {1}, kTightPush + 1);
  world().SetHot(At(1), false);
  EXPECT_TRUE(Heard(0, 1));
  Train(0, {1}, kTightPush + 1);
  EXPECT_FALSE(Heard(0, 1));
  Train(0, {1}, kLoose - 1);
  EXPECT_EQ(Unsent(0, 1), static_cast<uint64_t>(kLoose - 1));
  world().SetHot(At(1), true);
  Train(0, {1});
  EXPECT_TRUE(Heard(0, 1));
}

TEST_P(ClassesTest, ARowThatBecomesTightIsPushedAtItsNextTick) {
  MakeWorld(2);
  Train(0, {1}, kTightPush + 1);
  Train(1, {1}, kTightPush + 1);
  world().SetHot(At(1), false);
  Train(0, {1}, kTightPush + 1);  // it hears that the row is rare
  Train(0, {1}, 10);
  Train(1, {1}, kTightPush + 1);
  EXPECT_EQ(Unsent(0, 1), 10u);
  world().SetHot(At(1), true);
  Train(1, {1}, kTightPush + 1);  // the row is now further ahead than the tighter bound allows
  const auto step = Read(0, {1});
  EXPECT_TRUE(Heard(0, 1));
  EXPECT_EQ(Unsent(0, 1), 10u);
  Write(0, step.get());
  EXPECT_EQ(Unsent(0, 1), 0u);
}

// I2 and I3 by class, once all have heard: the oracle of the world checks each read; here is what it allows.
TEST_P(ClassesTest, AReadMissesAsManyTicksAsItsClassAllows) {
  for (const char* checks : {"asked", "told"}) {
    MakeWorld(2, checks);
    Train(0, {1, 2}, kTightPush + 1);
    Train(1, {1, 2}, kTightPush + 1);
    world().SetHot(At(2), false);
    Train(0, {1, 2}, kTightPush + 1);
    Train(1, {1, 2}, kTightPush + 1);
    ASSERT_FALSE(Heard(0, 2) || Heard(1, 2)) << checks;
    const auto missed = [&](Key key) {
      const auto step = Read(0, {key}, /*training=*/false);
      const uint64_t seen = static_cast<uint64_t>(kInitial - step->parts().begin()->second.values[0][1]);
      return static_cast<int64_t>(world().Issued(1, At(key)) - seen);
    };
    int64_t hot = 0;
    int64_t rare = 0;
    for (int i = 0; i < 100; ++i) {
      Train(1, {1, 2});
      hot = std::max(hot, missed(1));
      rare = std::max(rare, missed(2));
    }
    EXPECT_GT(hot, 0) << checks;
    EXPECT_LE(hot, kTightPull + kTightPush + 1) << checks;
    EXPECT_GT(rare, kLoose) << checks;
  }
}

// One row in every step, one in every 160th: both are in the class that their ticks give them, though workers
// hold most of them back.
TEST_P(ClassesTest, ClassesAreLearned) {
  MakeWorld(2);
  for (Key step = 0; step < 1600; ++step) {
    for (size_t w : {0, 1}) Train(w, step % 160 == 0 ? std::vector<Key>{1, 2} : std::vector<Key>{1});
  }
  for (size_t w : {0, 1}) {
    EXPECT_TRUE(Heard(w, 1));
    EXPECT_FALSE(Heard(w, 2));
  }
  const Counters& seen = world().client(0).Stats(world().schema(0)->id());
  EXPECT_GT(seen.hot_reads, 700u);
  EXPECT_GE(seen.hot_ticks, seen.hot_reads);
  EXPECT_LT(seen.hot_ticks, seen.ticks);
  EXPECT_GT(Counters::StalenessOf(seen.hot_lags).observed, 500u);
  EXPECT_LE(Counters::StalenessOf(seen.hot_lags).max, 3.0);
}

INSTANTIATE_TEST_SUITE_P(OfEveryPlace, ClassesTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Device" : "Host"; });

}  // namespace
}  // namespace het::testing
