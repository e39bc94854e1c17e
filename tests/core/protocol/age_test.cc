// Ticks that reach their age (push_max_age), on the clock of the test's network.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/testing/world/world_test.h"

namespace het::testing {
namespace {

using ::testing::ElementsAre;

constexpr double kAge = 8;

// A cache whose bounds hold nothing and send nothing.
WorldConfig Aged(size_t capacity = 1000) {
  WorldConfig config = Bounded(kUnbounded, capacity);
  config.cache.push_max_age = kAge;
  return config;
}

class Age : public WorldTest {
 protected:
  Client& client() { return world().client(0); }
  uint64_t Counter(uint64_t Counters::*counter) { return cache()->counters().*counter; }
  // The worker waits for data; its thread looks after pushes.
  void Wait(double seconds) {
    net().Sleep(seconds);
    client().Progress(0);
    world().CheckAges(0);
  }
  std::vector<std::vector<Key>> Pushed() {
    std::vector<std::vector<Key>> frames;
    for (const Request& request : Sent(0)) {
      if (request.seq == 0) continue;
      frames.emplace_back();
      for (const auto& table : request.tables) {
        for (Key key : table.push_keys) frames.back().push_back(key);
      }
    }
    return frames;
  }
};

// Defects: nothing is sent while no step runs, or the thread does not learn when to look.
TEST_F(Age, AWorkerThatWaitsSendsItsTicksInTime) {
  Make(Aged());
  Train(0, {1, 2});
  Wait(kAge - 1);
  EXPECT_EQ(Counter(&Counters::age_push), 0u);
  ASSERT_TRUE(client().Busy());
  EXPECT_DOUBLE_EQ(client().Due(), 1);
  EXPECT_FALSE(client().PastAge());
  Wait(1);
  EXPECT_EQ(Counter(&Counters::age_push), 2u);
  EXPECT_EQ(Counter(&Counters::bound_push), 0u);
  EXPECT_EQ(world().ServerClock(At(1)), 1);
  Wait(0);
  EXPECT_FALSE(client().Busy()) << "the thread sleeps";
  Drained();
}

// Defects: a step's end leaves due rows of other steps to the thread, or sends them in frames of their own.
TEST_F(Age, AStepSendsRowsThatAreNearlyDueInItsFrame) {
  WorldConfig config = Aged();
  config.cache.push_bound = 0;
  Make(config);
  net().record = true;
  OthersUse held_back;
  held_back.exact = false;
  auto step = Read(0, {1});
  ASSERT_TRUE(world().Write(0, step.get(), &held_back).ok());  // rows that nobody wants stay
  net().Sleep(0.9 * kAge);
  Sent(0);
  Train(0, {2});
  EXPECT_THAT(Pushed(), ElementsAre(ElementsAre(1, 2)));
  EXPECT_EQ(Counter(&Counters::bound_push), 1u);
  EXPECT_EQ(Counter(&Counters::age_push), 1u);
}

// Defect: a step waits until aged rows are applied, though its push bound does not ask for that.
TEST_F(Age, NoStepWaitsForThem) {
  Make(Aged());
  Train(0, {1});
  Train(0, {2});
  auto step = Read(0, {2});
  net().Sleep(kAge);
  const double before = net().Now();
  net().HoldReplies(0, true);
  Write(0, step.get());
  EXPECT_EQ(net().Now(), before);
  EXPECT_TRUE(log().unapplied());
  net().HoldReplies(0, false);
  Drained();
}

// Defect: while the server is away the thread makes frame after frame, or asks without a pause.
TEST_F(Age, ADeadServerGetsOneFrameLater) {
  Make(Aged());
  Train(0, {1, 2});
  net().HoldRequests(0, true);
  Wait(kAge);
  for (int i = 0; i < 100; ++i) {
    EXPECT_GE(client().Due(), 1e-3);
    Wait(0.5);
    net().Cut(0);
  }
  EXPECT_EQ(log().next_seq(), 2u);
  EXPECT_EQ(Counter(&Counters::age_push), 2u);
  EXPECT_LE(Counter(&Counters::resends), 100u);
  net().HoldRequests(0, false);
  Drained();
}

// Defect: after a long pause all rows are one frame, which a server may refuse.
TEST_F(Age, ManyRowsAreSeveralFrames) {
  WorldConfig config = Aged();
  config.client.max_frame_bytes = 100;
  Make(config);
  Train(0, Range(0, 50));
  Wait(kAge);
  Wait(0);
  EXPECT_GE(log().next_seq(), 9u);
  EXPECT_EQ(Counter(&Counters::age_push), 50u);
  Drained();
}

}  // namespace
}  // namespace het::testing
