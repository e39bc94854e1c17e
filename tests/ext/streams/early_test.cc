// Early lookups: what they ask and when, what the lookup sees, and events that drop them.

#include "tests/testing/held_lines.h"
#include "tests/testing/world/world_test.h"

namespace het::testing {
namespace {

class Early : public WorldTest {
 protected:
  // Begins an early lookup of these keys.
  std::unique_ptr<TestStep> Begin(const std::vector<Key>& keys, size_t w = 0) {
    auto step = world().NewStep({keys});
    world().ReadEarly(w, step.get());
    return step;
  }
  // Makes the lookup itself.
  void Come(TestStep* step, size_t w = 0) { EXPECT_TRUE(Ok(world().Read(w, step))); }
  void Step(TestStep* step, size_t w = 0) {
    Come(step, w);
    Write(w, step);
  }
  // Makes a world whose workers know the table's epoch: the answer to a first request has only the epoch.
  void MakeKnown(const WorldConfig& config) {
    Make(config);
    for (size_t w = 0; w < config.workers; ++w) Read(w, {777}, /*training=*/false);
  }
  void Settle(size_t w = 0) { world().client(w).Progress(0); }
  bool OnWay(size_t w = 0) { return world().client(w).EarlyOnWay(); }
  // All keys that the worker has requested to fetch or check since the last call.
  Vector<Key> Asked(Vector<Key> TableRequest::*which, size_t w = 0) {
    Vector<Key> keys;
    for (const Request& request : Sent(w)) {
      for (const TableRequest& table : request.tables) {
        keys.insert(keys.end(), (table.*which).begin(), (table.*which).end());
      }
    }
    return keys;
  }
};

// Defect: the lookup asks, or both ask.
TEST_F(Early, AsksAtItsBeginAndNotAtItsLookup) {
  MakeKnown(Bounded(3));
  Train(0, {1, 2});
  net().record = true;
  auto step = Begin({1, 2, 3, 4});
  const std::vector<Request> sent = Sent(0);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].tables[0].check_keys, Vector<Key>({1, 2}));
  EXPECT_EQ(sent[0].tables[0].fetch_keys, Vector<Key>({3, 4}));
  Come(step.get());
  EXPECT_TRUE(Sent(0).empty());
  Write(0, step.get());
  EXPECT_EQ(cache()->counters().reads, 6u);
  EXPECT_EQ(cache()->counters().hits, 2u);
  EXPECT_EQ(cache()->counters().miss_pull, 5u);  // one of them the first of all
  EXPECT_EQ(HeldLines(*cache()), 0u);
  Drained();
}

// An earlier answer must not undo other changes of rows in the cache.
TEST_F(Early, RowsThatWereChangedAreReadAgain) {
  MakeKnown(Bounded(kUnbounded));
  net().HoldReplies(0, true);
  auto step = Begin({1, 2});
  const Key key = 1;
  world().client(0).Invalidate(world().schema(0)->id(), Span<const Key>(&key, 1));
  EXPECT_FALSE(OnWay());
  net().HoldReplies(0, false);
  Settle();
  EXPECT_EQ(cache()->lines().size(), 0u) << "the answer must be ignored";
  net().record = true;
  Step(step.get());
  EXPECT_EQ(Asked(&TableRequest::fetch_keys), Vector<Key>({1, 2}));
  Drained();
}

// The partition restarts from an earlier state, which the worker learns before the lookup: rows of the early
// read are invalid.
TEST_F(Early, ANewIncarnationIsAskedAgain) {
  WorldConfig config = Bounded(3);
  config.workers = 2;
  config.cache.push_bound = 0;
  MakeKnown(config);
  const World::Saved before = world().Snapshot(0);
  for (int i = 0; i < 3; ++i) Train(1, {1});
  auto step = Begin({1});
  ASSERT_FALSE(OnWay());
  world().Restart(0, before);
  Read(0, {777}, /*training=*/false);  // learns of the restart
  Come(step.get());
  EXPECT_EQ(step->Value(At(1).first, 1)[1], kInitial);
}

TEST_F(Early, DroppedTableDropsItsReads) {
  Make(WithTables(2, Bounded(3)));
  auto both = world().NewStep({{1}, {1}});
  world().ReadEarly(0, both.get());
  net().HoldReplies(0, true);
  auto more = world().NewStep({{2}, {2}});
  world().ReadEarly(0, more.get());
  world().client(0).RemoveTable(world().schema(1)->id());
  EXPECT_FALSE(OnWay());
  net().HoldReplies(0, false);
  Settle();
  EXPECT_TRUE(world().Read(0, world().NewStep({{1, 2}}).get()).ok());
}

// An abandoned iterator: no more requests for it, and its rows may leave.
TEST_F(Early, AbandonedOneIsDropped) {
  MakeKnown(Bounded(3, 3));
  auto here = Begin({1, 2});
  net().HoldReplies(0, true);
  auto on_way = Begin({3});
  EXPECT_GT(HeldLines(*cache()), 0u);
  world().client(0).EndLookup(here->token);
  world().client(0).EndLookup(on_way->token);
  EXPECT_FALSE(OnWay());
  net().HoldReplies(0, false);
  Settle();
  EXPECT_EQ(HeldLines(*cache()), 0u);
  EXPECT_EQ(cache()->lines().Find(3), kNoRow);
  for (Key key = 10; key < 20; ++key) Train(0, {key});
  EXPECT_LE(cache()->lines().size(), 3u);
  Drained();
}

// The same for a dropped table: lookups of other tables succeed.
TEST_F(Early, DroppedTableFailsOnlyItsOwnLookup) {
  Make(WithTables(2, Bounded(3)));
  auto both = world().NewStep({{1}, {1}});
  ASSERT_TRUE(world().Read(0, both.get()).ok());
  operators().Drop(0);
  net().HoldRepliesFor(0, 0.2);
  auto early = world().NewStep({{2}, {}});
  world().ReadEarly(0, early.get());
  Client& client = world().client(0);
  EXPECT_TRUE(Ok(client.Read(world().NewStep({{}, {1}})->MakeRead(), world().NewToken())));
  EXPECT_TRUE(Fails(client.Read(early->MakeRead(), early->token), Code::kFailedPrecondition, "no table"));
}

}  // namespace
}  // namespace het::testing
