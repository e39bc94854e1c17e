// How long frames are kept: until applied, until a replica has them, until a checkpoint; restarts of a server
// without acknowledged frames; and how long a store remembers clients.
#include <gmock/gmock.h>

#include "tests/testing/world/world_test.h"

namespace het::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Durable : public WorldTest {
 protected:
  using WorldTest::Make;
  void Make(Durability durability, uint32_t workers = 1, size_t keep_bytes = size_t{1} << 30) {
    WorldConfig config = Bounded(0);
    config.workers = workers;
    config.client.durability = durability;
    config.client.keep_bytes = keep_bytes;
    config.client.replica_interval = 0;
    config.client.notice = [this](const std::string& text) { notices_.push_back(text); };
    Make(config);
  }
  // Asks the replica, and waits for the answers.
  void Settle() {
    for (int i = 0; i < 5; ++i) world().client(0).Progress(0.01);
  }

  std::vector<std::string> notices_;
};

TEST_F(Durable, StaleReplicaTakesOverWithoutLosses) {
  Make(Durability::kReplicated, 2);
  for (int i = 0; i < 3; ++i) Train(0, {1});
  Settle();
  EXPECT_EQ(log().frames().size(), 0u) << "the replica has them";
  world().replica_stands_still = true;
  for (int i = 0; i < 5; ++i) Train(0, {1, 2});
  for (int i = 0; i < 9; ++i) Train(1, {1});
  Settle();
  EXPECT_EQ(log().frames().size(), 5u);
  world().Promote(0);
  world().replica_stands_still = false;
  for (int i = 0; i < 9; ++i) Train(1, {1});
  Drained();
  EXPECT_EQ(world().ServerClock(At(1)), 26);
  EXPECT_EQ(world().Sum(&Counters::lost_pushes), 0u);
  EXPECT_EQ(world().Sum(&Counters::repaired), 14u) << "five of one worker, nine of the other";
  ASSERT_EQ(notices_.size(), 2u) << "one of each worker";
  EXPECT_THAT(notices_[0], HasSubstr("partition 0 came to life again without 5 pushes of this worker"));
  EXPECT_THAT(notices_[0], HasSubstr("5 were kept and are sent again"));
  EXPECT_THAT(notices_[1], HasSubstr("9 were kept and are sent again"));
  for (const std::string& notice : notices_) EXPECT_THAT(notice, Not(HasSubstr("lost")));
}

TEST_F(Durable, LossWithoutKeptFramesIsReportedOnce) {
  Make(Durability::kApplied, 2);
  Train(0, {1});
  const World::Saved older = world().Snapshot(0);
  for (int i = 0; i < 6; ++i) Train(0, {1});
  world().Restart(0, older);
  for (int i = 0; i < 3; ++i) Train(0, {1});
  ASSERT_TRUE(world().Flush(0).ok());
  EXPECT_EQ(world().ServerClock(At(1)), 4);
  EXPECT_EQ(world().Sum(&Counters::lost_pushes), 6u);
  EXPECT_EQ(world().Sum(&Counters::repaired), 0u);
  ASSERT_EQ(notices_.size(), 1u);
  EXPECT_THAT(notices_[0],
              HasSubstr("without 6 pushes of this worker that had been acknowledged: 6 are lost"));
  EXPECT_THAT(notices_[0], HasSubstr("durability='replicated'"));
}

// Only the replica is missing: nothing is on its way, and a write that has no room for its frame says so.
TEST_F(Durable, WritesThatWaitForReplicasNameThem) {
  Make(Durability::kReplicated, 1, 500);
  world().replica_stands_still = true;
  Status status;
  for (int i = 0; i < 50 && status.ok(); ++i) status = world().Write(0, Read(0, {1, 2}).get());
  EXPECT_TRUE(Fails(status, Code::kDeadlineExceeded, "partition 0: pushes are with 0 of 1 replicas, since",
                    "Bring the replicas back"));
  world().replica_stands_still = false;
  net().Sleep(60);
  Train(0, {1, 2});
  Drained();
}

TEST_F(Durable, FullMemoryForgetsTheOldestKeptFrames) {
  Make(Durability::kCheckpoint, 1, 3000);
  for (int i = 0; i < 40; ++i) Train(0, {1, 2});
  size_t bytes = 0;
  for (const PushFrame& frame : log().frames()) bytes += frame.bytes();
  EXPECT_LE(bytes, 3000u);
  EXPECT_EQ(log().kept_bytes(), bytes);
  EXPECT_GT(log().frames().size(), 3u);
  EXPECT_EQ(log().frames().back().seq, 40u);
  EXPECT_EQ(world().Sum(&Counters::dropped_pushes), 40 - log().frames().size());
  ASSERT_EQ(notices_.size(), 1u) << "told once";
  EXPECT_THAT(notices_[0], HasSubstr("the oldest are forgotten"));
  world().client(0).MarkDurable();
  EXPECT_EQ(log().frames().size(), 0u);
  EXPECT_EQ(log().kept_bytes(), 0u);
  for (int i = 0; i < 40; ++i) Train(0, {1, 2});
  EXPECT_EQ(notices_.size(), 2u) << "once for each checkpoint";
}

// Frames that are still kept are sent again; the forgotten ones are counted as lost.
TEST_F(Durable, HalfOfALossIsRepaired) {
  Make(Durability::kCheckpoint);
  const World::Saved empty = world().Snapshot(0);
  for (int i = 0; i < 4; ++i) Train(0, {1});
  world().client(0).MarkDurable();
  for (int i = 0; i < 3; ++i) Train(0, {1});
  world().Operate([&] { world().Restart(0, empty); });  // the loss is known
  Read(0, {1}, false);
  ASSERT_TRUE(world().Flush(0).ok());
  EXPECT_EQ(world().ServerClock(At(1)), 3);
  EXPECT_EQ(world().Sum(&Counters::lost_pushes), 4u);
  EXPECT_EQ(world().Sum(&Counters::repaired), 3u);
  ASSERT_EQ(notices_.size(), 1u);
  EXPECT_THAT(notices_[0], HasSubstr("7 pushes"));
  EXPECT_THAT(notices_[0], HasSubstr("3 were kept and are sent again, 4 are lost"));
  EXPECT_EQ(log().kept_bytes(), log().frames().size() * log().frames()[0].bytes());
}

// A hundred frames, two seconds each: longer than the deadline, but with steady progress.
TEST_F(Durable, TheDeadlineCountsFromTheLastProgress) {
  WorldConfig config = Bounded(kUnbounded);
  config.client.max_frame_bytes = 1;
  config.client.deadline = 9;
  config.client.request_timeout = 1000;
  Make(config);
  Train(0, Range(0, 100));
  const double start = net().Now();
  net().seconds_a_reply = 2;
  EXPECT_TRUE(Ok(world().client(0).Flush()));
  EXPECT_GT(net().Now(), start + 100);
  net().seconds_a_reply = 0;
  Drained();
}

// --- clients that the store forgets

class Growth : public WorldTest {
 protected:
  size_t Clients() {
    return world().service().WithPartition(0, [](Partition& p) { return p.clients().all().size(); });
  }
};

// Nothing is lost or doubled when a forgotten client returns.
TEST_F(Growth, AClientThatWasForgottenBeginsAnew) {
  for (const bool reads_first : {true, false}) {
    Make(WithWorkers(2, Bounded(0)));
    for (int i = 0; i < 3; ++i) Train(0, {1, 2});
    const ClientId before = session(0).client();
    world().now += kClientSeconds - 1;
    Train(1, {1});
    EXPECT_EQ(Clients(), 2u);
    world().now += 1;
    Train(1, {1});
    EXPECT_EQ(Clients(), 1u);
    if (reads_first) Read(0, {1});
    Train(0, {1, 2});
    Train(0, {2});
    EXPECT_FALSE(session(0).client() == before);
    EXPECT_EQ(Clients(), 2u);
    Drained();
  }
}

TEST_F(Growth, AClientThatPushesIsNotForgotten) {
  Make(Bounded(0));
  const ClientId before = session(0).client();
  for (int i = 0; i < 5; ++i) {
    world().now += kClientSeconds - 1;
    Train(0, {1});
  }
  EXPECT_TRUE(session(0).client() == before);
  Drained();
}

}  // namespace
}  // namespace het::testing
