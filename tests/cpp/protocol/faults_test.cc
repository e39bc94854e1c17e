// Broken connections; frames that come twice, late or never; servers that refuse, forget or restart;
// processes that fork.
#include <gtest/gtest.h>

#include "het_tf/core/store/local_transport.h"
#include "tests/cpp/testing/world/world_test.h"

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
  // The frames of keys 1, 2 and 3 wait at the network.
  void HoldThreeFrames() {
    Make(PushesNobodyWaitsFor());
    std::vector<std::unique_ptr<TestStep>> steps;
    for (Key key : {1, 2, 3}) steps.push_back(Read(0, {key}));
    net().HoldRequests(0, true);
    for (auto& step : steps) EXPECT_TRUE(world().Write(0, step.get()).ok());
    world().client(0).Progress(0);
    ASSERT_EQ(net().requests(0), 3u);
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

// Three frames in the pipeline, the first of which is refused: the partition must refuse the others as a gap.
TEST_F(Fault, ARefusedFrameAndItsSuccessors) {
  HoldThreeFrames();
  net().RefuseNext(0);
  for (int i = 0; i < 3; ++i) net().Serve(0);
  for (Key key : {1, 2, 3}) EXPECT_EQ(world().ServerClock(At(key)), 0) << key;
  net().HoldRequests(0, false);
  Drained();
  for (Key key : {1, 2, 3}) EXPECT_EQ(world().ServerClock(At(key)), 1) << key;
  EXPECT_GT(cache()->counters().resends, 0u);
}

TEST_F(Fault, FramesThatAreLostBehindOneThatArrived) {
  for (size_t applied : {0, 1, 2, 3}) {
    HoldThreeFrames();
    net().Cut(0, applied);
    net().HoldRequests(0, false);
    Drained();
    for (Key key : {1, 2, 3}) EXPECT_EQ(world().ServerClock(At(key)), 1) << key;
  }
}

TEST_F(Fault, ReplyAfterATimeOut) {
  Make(0);
  Train(0, {1});
  auto step = Read(0, {1});
  // Served, but the answer comes after the time-out: the client resets the connection and sends again.
  net().HoldRepliesFor(0, 15);
  EXPECT_TRUE(world().Write(0, step.get()).ok());
  EXPECT_EQ(world().ServerClock(At(1)), 2);
  EXPECT_GT(cache()->counters().resends, 0u);
  Drained();
}

TEST_F(Fault, BytesOfAnAbandonedConnectionArriveLate) {
  Make(0);
  Train(0, {1});
  auto step = Read(0, {1});
  net().SilenceOnce(0);
  EXPECT_TRUE(world().Write(0, step.get()).ok());
  EXPECT_EQ(world().ServerClock(At(1)), 2);
  net().ServeGhosts();
  EXPECT_EQ(world().ServerClock(At(1)), 2);
  Train(0, {1});
  EXPECT_EQ(world().ServerClock(At(1)), 3);
  Drained();
}

TEST_F(Fault, DurableFramesAreForgotten) {
  Make(0, /*keep=*/true);
  for (int i = 0; i < 4; ++i) Train(0, {1});
  EXPECT_EQ(log().frames().size(), 4u);
  world().client(0).MarkDurable();
  EXPECT_EQ(log().frames().size(), 0u);
  const Bytes checkpoint = world().Snapshot(0);
  for (int i = 0; i < 3; ++i) Train(0, {1});
  world().Failover(0, checkpoint);
  Drained();
  EXPECT_EQ(world().ServerClock(At(1)), 7);
  EXPECT_EQ(world().Sum(&Counters::lost_pushes), 0u);
}

// Two reads are in flight when the partition restarts behind a proxy: the second answer is about old bases.
TEST_F(Fault, ChecksOfAnOlderLifeAreAskedAgain) {
  Make(2, /*keep=*/true, /*workers=*/2);
  const Bytes empty = world().Snapshot(0);
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
  // Another client's three ticks: the clock is as before, the row is not.
  LocalTransport direct(&world().service());
  Client other(&direct);
  ASSERT_TRUE(other.AddTable(world().schema(0), world().config().cache).ok());
  for (int i = 0; i < 3; ++i) {
    auto step = world().NewStep({{2}});
    for (auto& [where, part] : step->parts()) part.sums.assign(part.sums.size(), 5);
    ASSERT_TRUE(other.Read(step->MakeRead(), 1).ok());
    ASSERT_TRUE(other.Write(step->MakeWrite(1), 1, nullptr).ok());
  }
  ASSERT_TRUE(other.Flush().ok());
  net().HoldRequests(0, false);
  while (!first->done() || !second->done()) world().client(0).Progress(0.05);
  ASSERT_TRUE(world().client(0).FinishRead(first.get()).ok());
  ASSERT_TRUE(world().client(0).FinishRead(second.get()).ok());
  EXPECT_EQ(b->Value(At(2).first, 2)[0], kInitial - 15);
  first.reset();
  second.reset();
  Abandon();  // the oracle does not know the other client's ticks
}

}  // namespace
}  // namespace het::testing
