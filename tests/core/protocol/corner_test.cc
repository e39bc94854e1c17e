// Corner cases of the clock protocol, one test each: batches, keys and bounds; steps that overlap, validation
// in between, and reads and pushes of a key that cross on the wire.
#include <gtest/gtest.h>

#include "het_tf/core/wire/layout.h"
#include "tests/testing/held_lines.h"
#include "tests/testing/world/world_test.h"

namespace het::testing {
namespace {

class Corner : public WorldTest {
 protected:
  // The first `count` keys from 0 on whose rows of the first table are in partition p.
  std::vector<Key> KeysOf(uint32_t p, size_t count) {
    std::vector<Key> keys;
    const TableLayout layout = Layout(world().service().id(0)).OfTable(world().schema(0)->id());
    for (Key key = 0; keys.size() < count; ++key) {
      if (layout.OfKey(key) == p) keys.push_back(key);
    }
    return keys;
  }
};

TEST_F(Corner, EmptyBatchSendsNothing) {
  Make(Bounded(0));
  Train(0, {});
  EXPECT_EQ(world().transport(0).served(), 0u);
}

TEST_F(Corner, BatchLargerThanTheCache) {
  Make(Bounded(3, 4));
  for (int i = 0; i < 5; ++i) {
    Train(0, Range(0, 50));
    EXPECT_LE(cache()->lines().size(), 4u);
  }
  EXPECT_EQ(cache()->counters().transient_rows, 0u);
  EXPECT_EQ(cache()->counters().evictions, cache()->counters().inserts - 4);
  Drained();
}

TEST_F(Corner, TwoTablesInOneFrame) {
  Make(WithTables(2, Bounded(0)));
  world().transport(0).record = true;
  auto step = world().NewStep({{1, 2}, {2, 3}});
  ASSERT_TRUE(world().Read(0, step.get()).ok());
  Sent(0);
  Write(0, step.get());
  const std::vector<Request> sent = Sent(0);
  ASSERT_EQ(sent.size(), 1u);
  ASSERT_EQ(sent[0].tables.size(), 2u);
  EXPECT_EQ(sent[0].tables[0].push_keys.size() + sent[0].tables[1].push_keys.size(), 4u);
  for (size_t t = 0; t < 2; ++t) {  // each counts its own part
    const Counters& counters = world().client(0).cache(world().schema(t)->id())->counters();
    EXPECT_EQ(counters.row_bytes_out, 2 * world().schema(t)->optimizer().wire_floats() * sizeof(float));
    EXPECT_GE(counters.requests, 2u);
    EXPECT_GT(counters.metadata_bytes_in, 0u);
  }
  Drained();
}

TEST_F(Corner, AllZeroGradientMakesNoTick) {
  Make(Bounded(0));
  auto step = Read(0, {1, 2});
  for (auto& [where, part] : step->parts()) part.touched.assign(part.touched.size(), 0);
  Write(0, step.get());
  EXPECT_EQ(world().ServerClock(At(1)), 0);
  EXPECT_EQ(LocalStore(&world().service()).Size(*world().schema(0)).value().rows, 0u);
  EXPECT_EQ(HeldLines(*cache()), 0u);
}

TEST_F(Corner, KeysOnTheLastShardOnly) {
  WorldConfig config = Bounded(1);
  config.partitions = 4;
  Make(config);
  for (int i = 0; i < 4; ++i) Train(0, KeysOf(3, 20));
  for (uint32_t p = 0; p < 3; ++p)
    EXPECT_EQ(world().client(0).session(p).incarnation(), 0u) << "no request to " << p;
  Drained();
}

TEST_F(Corner, UnboundedTravelsOnMissAndEvictionOnly) {
  Make(Bounded(kUnbounded));
  Train(0, {1, 2});
  const uint64_t served = world().transport(0).served();
  for (int i = 0; i < 100; ++i) Train(0, {1, 2});
  EXPECT_EQ(world().transport(0).served(), served);
  EXPECT_EQ(world().ServerClock(At(1)), 0);
  Drained();
}

TEST_F(Corner, PushesPastSmallBoundsAndAtLargerBounds) {
  for (int64_t bound : {int64_t{0}, int64_t{1}, SyncPolicy::kEarlyPush - 1, SyncPolicy::kEarlyPush,
                        SyncPolicy::kEarlyPush + 7}) {
    Make(Bounded(bound));
    const int64_t due = bound < SyncPolicy::kEarlyPush ? bound + 1 : bound;
    for (int64_t tick = 1; tick <= 3 * due; ++tick) {
      Train(0, {1});
      EXPECT_EQ(world().ServerClock(At(1)), tick / due * due) << "bound " << bound << ", tick " << tick;
    }
    Drained();
  }
}

TEST_F(Corner, NextTickWaitsForAPushAtTheBound) {
  WorldConfig config = Bounded(SyncPolicy::kEarlyPush);
  config.cache.pull_bound = kUnbounded;  // reads need no answer
  config.client.deadline = 3;
  Make(config);
  Train(0, {1, 2});
  for (int64_t tick = 2; tick < SyncPolicy::kEarlyPush; ++tick) Train(0, {1});
  net().HoldReplies(0, true);
  Train(0, {1});
  EXPECT_EQ(log().frames().size(), 1u);
  EXPECT_TRUE(log().unapplied());
  Train(0, {2});
  auto step = Read(0, {1});
  EXPECT_TRUE(Fails(world().Write(0, step.get()), Code::kDeadlineExceeded));
  net().HoldReplies(0, false);
  Drained();
}

TEST_F(Corner, ClocksPastTwoToTheThirtyOne) {
  Make(WithWorkers(2, Bounded(1)));
  Train(0, {1, 2});
  ASSERT_TRUE(world().Flush(0).ok());
  const int64_t limit = int64_t{1} << 31;
  world().Operate([&] {
    world().service().WithPartition(0, [&](Partition& p) {
      RowStore& rows = p.Find(At(1).first)->rows();
      rows.meta(rows.Find(1)).clock += limit;
    });
  });
  for (int i = 0; i < 4; ++i) Train(0, {1});
  for (int i = 0; i < 4; ++i) Train(1, {1});
  EXPECT_EQ(world().ServerClock(At(1)), limit + 9);
  Read(0, {1});
  EXPECT_EQ(cache(0)->lines().base(cache(0)->lines().Find(1)), limit + 9)
      << "further behind than the bound: refreshed";
}

TEST_F(Corner, DeviceLookupSendsOneRequestPerPartition) {
  WorldConfig config = Bounded(0);
  config.devices = 1;
  config.partitions = 3;
  config.tables = 2;
  Make(config);
  for (const size_t sent : {0, 3}) {
    const std::vector<Key> keys = Range(0, sent == 0 ? 30 : 60);
    auto step = world().NewStep({keys, keys});
    ASSERT_TRUE(world().Read(0, step.get()).ok());
    size_t checks = 0, fetches = 0;
    const std::vector<Request> requests = Sent(0);
    for (const Request& request : requests) {
      for (const TableRequest& t : request.tables) {
        checks += t.check_keys.size();
        fetches += t.fetch_keys.size();
      }
    }
    EXPECT_EQ(requests.size(), sent) << "only the first requests ask for incarnations";
    EXPECT_EQ(checks, 20 * sent);
    EXPECT_EQ(fetches, 20 * sent);
    net().record = true;
  }
}

using Overlap = WorldTest;

TEST_F(Overlap, ValidationDoesNotTouchThePolicy) {
  Make(Bounded(kUnbounded, 3));
  for (Key key : {1, 2, 3}) Train(0, {key});
  Read(0, {1}, false);  // if it counted as a use, 2 would be evicted
  Train(0, {4});
  EXPECT_EQ(cache()->lines().Find(1), kNoRow);
  EXPECT_NE(cache()->lines().Find(2), kNoRow);
}

TEST_F(Overlap, AReadMayBeAbandoned) {
  Make(Bounded(0));
  Train(0, {1, 2});
  auto step = world().NewStep({{1, 2, 3}});
  world().transport(0).HoldReplies(0, true);
  auto op = world().client(0).BeginRead(step->MakeRead(), world().NewToken());
  world().client(0).Progress(0);
  EXPECT_EQ(HeldLines(*cache()), 2u);
  op.reset();
  world().transport(0).HoldReplies(0, false);
  Train(0, {3});
  Drained();
}

// A partition that restarts has other bases. Defect: the same question goes out when the thread looks again.
TEST_F(Overlap, AReadIsAskedAgainAtOnce) {
  Make(Bounded(0));
  Train(0, {1});
  world().Restart(0, world().Snapshot(0), /*close=*/false);
  auto step = world().NewStep({{1}});
  const auto op = world().BeginRead(0, step.get(), true);
  world().client(0).Progress(0);
  EXPECT_FALSE(op->done());
  EXPECT_FALSE(session().waits()) << "it is on its way again";
  while (!op->done()) world().client(0).Progress(0.05);
  ASSERT_TRUE(world().FinishRead(0, op.get(), step.get()).ok());
  Drained();
}

TEST_F(Overlap, FrameThatPushesAndFetchesOneKey) {
  WorldConfig config = Bounded(3, 0);
  config.cache.write_back_rows =
      0;  // an evicted row goes into a frame at once, which is sent with the next call
  Make(config);
  Train(0, {1});
  world().transport(0).record = true;
  EXPECT_EQ(Read(0, {1})->Value(At(1).first, 1)[0], kInitial - 1);
  const std::vector<Request> sent = Sent(0);
  ASSERT_EQ(sent.size(), 1u);
  ASSERT_EQ(sent[0].tables.size(), 1u);
  EXPECT_EQ(sent[0].tables[0].push_keys, Vector<Key>({1}));
  EXPECT_EQ(sent[0].tables[0].fetch_keys, Vector<Key>({1}));
  Drained();
}

}  // namespace
}  // namespace het::testing
