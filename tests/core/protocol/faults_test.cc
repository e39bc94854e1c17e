// Frames that come twice, frames that are kept, a server that restarts. Broken connections, and frames that
// are late or lost: schedules_test.cc.
#include <gtest/gtest.h>

#include "tests/testing/world/world_test.h"

namespace het::testing {
namespace {

class Fault : public WorldTest {
 protected:
  using WorldTest::Make;
  void Make(int64_t bound, bool keep = false, uint32_t workers = 1) {
    WorldConfig config = Bounded(bound);
    config.workers = workers;
    config.client.durability = keep ? Durability::kCheckpoint : Durability::kApplied;
    Make(config);
  }
};

TEST_F(Fault, EveryRequestAndReplyTwice) {
  Make(0);
  net().faults.duplicate_request = 1;
  net().faults.duplicate_reply = 1;
  for (int i = 1; i <= 10; ++i) {
    Train(0, {1, 2});
    EXPECT_EQ(world().ServerClock(At(1)), i);
  }
  Drained();
}

// Two reads are in flight when the partition restarts behind a proxy: the second answer is about old bases.
TEST_F(Fault, ChecksOfAnOlderLifeAreAskedAgain) {
  Make(2, /*keep=*/false, /*workers=*/3);
  const World::Saved empty = world().Snapshot(0);
  for (int i = 0; i < 3; ++i) Train(1, {2});
  ASSERT_TRUE(world().Flush(1).ok());
  Read(0, {1, 2});  // base of key 2 is 3
  auto a = world().NewStep({{1}});
  auto b = world().NewStep({{2}});
  net().HoldRequests(0, true);
  auto first = world().client(0).BeginRead(a->MakeRead(), world().NewToken());
  world().client(0).Progress(0);
  auto second = world().client(0).BeginRead(b->MakeRead(), world().NewToken());
  world().client(0).Progress(0);
  world().Restart(0, empty, /*close=*/false);
  // Another worker's three ticks: the clock is as before, the row is not.
  for (int i = 0; i < 3; ++i) Train(2, {2});
  ASSERT_TRUE(world().Flush(2).ok());
  net().HoldRequests(0, false);
  while (!first->done() || !second->done()) world().client(0).Progress(0.05);
  ASSERT_TRUE(world().client(0).FinishRead(first.get()).ok());
  ASSERT_TRUE(world().client(0).FinishRead(second.get()).ok());
  EXPECT_EQ(b->Value(At(2).first, 2)[2], kInitial - 3);
}

}  // namespace
}  // namespace het::testing
