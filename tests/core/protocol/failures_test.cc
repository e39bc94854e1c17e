// Failing calls and vanishing rows: cleared or dropped tables, a server that restarts, exhausted memory,
// deadlines. Frames that come twice, late or never, and broken connections: schedules_test.cc.
#include <gtest/gtest.h>

#include "tests/testing/fits_in.h"
#include "tests/testing/held_lines.h"
#include "tests/testing/world/world_test.h"

namespace het::testing {
namespace {

using Failure = WorldTest;

TEST_F(Failure, ClearingTheStoreDiscardsUnsentUpdates) {
  WorldConfig config = Bounded(3);
  config.partitions = 3;
  std::vector<std::string> notices;
  config.client.notice = [&notices](const std::string& text) { notices.push_back(text); };
  Make(config);
  for (int i = 0; i < 6; ++i) Train(0, {1, 2});  // four applied, two unsent
  EXPECT_EQ(world().UnappliedTicks(0, At(1)), 2u);
  operators().Clear(0);
  Read(0, {1, 2});
  EXPECT_EQ(cache()->counters().discarded_ticks, 4u);
  ASSERT_TRUE(world().Flush(0).ok());
  ASSERT_EQ(notices.size(), 1u) << "one for all partitions";
  EXPECT_EQ(
      notices[0].find("4 updates of table '" + world().schema(0)->spec().name +
                      "' that had not been applied were discarded: somebody loaded, cleared or dropped it"),
      0u)
      << notices[0];
}

TEST_F(Failure, DroppedTableFailsAlone) {
  Make(WithTables(2, Bounded(3)));
  auto both = world().NewStep({{1}, {2}});
  ASSERT_TRUE(world().Read(0, both.get()).ok());
  ASSERT_TRUE(world().Write(0, both.get()).ok());
  const Schema gone = world().schema(0);
  const Schema stays = world().schema(1);
  operators().Drop(0);

  Client& client = world().client(0);
  const Status flush = client.Flush();  // both tables' updates in one frame
  EXPECT_TRUE(Fails(flush, Code::kFailedPrecondition, "partition 0", "no table"));
  EXPECT_EQ(client.UnappliedTicks(stays->id(), 2), 1u) << "kept";
  EXPECT_TRUE(client.Flush().ok());
  EXPECT_EQ(world().ServerClock({stays->id(), 2}), 1);

  EXPECT_EQ(world().Read(0, world().NewStep({{1}, {2}}).get()).code(), Code::kFailedPrecondition);
  EXPECT_TRUE(world().Read(0, world().NewStep({{}, {2}}).get()).ok());
  // Made again, it is a new table.
  ASSERT_TRUE(world().service().CreateTable(gone).ok());
  EXPECT_TRUE(world().Read(0, world().NewStep({{1}, {2}}).get()).ok());
}

TEST_F(Failure, DeadlineErrorExplainsAndLosesNothing) {
  WorldConfig config = Bounded(0);
  config.partitions = 3;
  std::vector<std::string> notices;
  config.client.notice = [&notices](const std::string& text) { notices.push_back(text); };
  Make(config);
  auto step = Read(0, Range(0, 30));
  EXPECT_TRUE(notices.empty());
  net().faults.refuse = 1;
  const Status status = world().Write(0, step.get());
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_NE(
      status.message().find("waited for 60 s; partitions 0, 1, 2: LOADING the test is loading, since 60 s"),
      std::string::npos)
      << status.message();
  ASSERT_EQ(notices.size(), 4u) << "after 5, 10, 20 and 40 s";
  EXPECT_NE(notices[3].find("a push waited for 40 s; partitions 0, 1, 2: "), std::string::npos) << notices[3];
  EXPECT_EQ(HeldLines(*cache()), 0u);
  net().faults.refuse = 0;
  Drained();
}

TEST_F(Failure, AWriteThatCannotFetchChangesNothing) {
  Make(Bounded(3, 0));
  auto old = Read(0, {1, 2});
  for (int i = 0; i < 10; ++i) Train(0, {1});
  for (int i = 0; i < 10; ++i) Read(0, {50 + i});
  Train(0, {7});
  ASSERT_EQ(cache()->lines().Find(2), kNoRow);
  net().faults.refuse = 1;
  const uint64_t ticks = cache()->counters().ticks;
  EXPECT_EQ(world().Write(0, old.get()).code(), Code::kDeadlineExceeded);
  EXPECT_EQ(cache()->counters().ticks, ticks);
  net().faults.refuse = 0;
  for (auto& [where, part] : old->parts()) part.rows.assign(part.rows.size(), kNoRow);
  EXPECT_TRUE(world().Write(0, old.get()).ok());
  Drained();
}

// Two reads are in flight when the partition restarts behind a proxy: the second answer is about old bases.
TEST_F(Failure, ChecksOfAnOlderLifeAreAskedAgain) {
  Make(WithWorkers(3, Bounded(2)));
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

// Memory is exhausted after any number of bytes, in client and store: a call fails or throws, and nothing is
// lost or applied twice.
TEST_F(Failure, MemoryEndsAnywhere) {
  for (size_t room = 0; room < 60000; room += room < 4000 ? 64 : 1024) {
    const bool in_write = room % 128 == 0;
    WorldConfig config = Bounded(static_cast<int64_t>(room % 3), 4);
    config.seed = room + 1;
    config.cache.write_back_rows = 1;
    Make(config);
    Random& random = world().random();
    for (int i = 0; i < 6; ++i) {
      std::vector<Key> keys;
      for (int n = 0; n < 40; ++n) keys.push_back(random.Between(0, 60));
      auto step = world().NewStep({keys});
      const auto limited = [&](bool limit, auto call) {
        bool ok = false;
        if (!limit) return call().ok();
        return FitsIn(room, [&] { ok = call().ok(); }) && ok;
      };
      if (limited(i == 3 && !in_write, [&] { return world().Read(0, step.get()); })) {
        limited(i == 3 && in_write, [&] { return world().Write(0, step.get()); });
      }
      world().CheckConservation();
      // An unsent frame goes out with the next call, of any kind.
      ASSERT_TRUE(Ok(world().Flush(0))) << room << " bytes";
    }
    Drained();
    ASSERT_EQ(world().FirstError(), "") << room << " bytes";
  }
}

}  // namespace
}  // namespace het::testing
