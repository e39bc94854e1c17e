// checks="notified": a client subscribes to rows, and the partition notifies it of rows that have moved
// (core/store/subscribers.h); the client trusts the others (core/client/subscriptions.h). Half of the random
// worlds of schedules_test.cc have it.
#include "het_tf/core/wire/layout.h"
#include "tests/core/protocol/notified_fixture.h"

namespace het::testing {
namespace {

TEST_F(Notified, SubscribedRowsAreReadWithoutWaiting) {
  Make(2);
  Hold(0, {1, 2, 3});
  const uint64_t before = checks();
  net(0).record = true;
  for (int i = 0; i < 5; ++i) {
    auto step = world().NewStep({{1, 2, 3}});
    const auto op = world().BeginRead(0, step.get(), true);
    EXPECT_TRUE(op->done());
    ASSERT_TRUE(world().FinishRead(0, op.get(), step.get()).ok());
    world().client(0).Progress(0);
  }
  EXPECT_EQ(checks(), before);
  EXPECT_EQ(cache()->counters().trusted, 15u);
  const std::vector<Request> sent = Sent(0);
  EXPECT_EQ(sent.size(), 5u);
  for (const Request& request : sent) {
    EXPECT_TRUE(request.subscribes());
    EXPECT_TRUE(request.tables.at(0).check_keys.empty());
    EXPECT_TRUE(request.tables.at(0).fetch_keys.empty());
  }
  Drained();
}

TEST_F(Notified, MovedRowIsFetchedAtItsUse) {
  Make(2);
  Hold(0, {1, 2, 3, kOther});
  for (int i = 0; i < 2; ++i) Train(1, {1});
  EXPECT_EQ(SeenThen(0, 1, 1), 0) << "within the bound";
  Train(1, {1, 2});
  EXPECT_EQ(Seen(0, 1, 1), 0) << "within the bound when the partition last answered";
  for (int i = 0; i < 3; ++i) Hear(0);
  EXPECT_EQ(cache()->counters().notified_rows, 1u);
  EXPECT_EQ(subscribers().notified(), 1u) << "named once";
  EXPECT_EQ(cache()->counters().update_pull, 0u);
  net(0).record = true;
  EXPECT_EQ(Seen(0, 1, 1), 3);
  const std::vector<Request> sent = Sent(0);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].tables.at(0).fetch_keys, Vector<Key>({1}));
  EXPECT_EQ(cache()->counters().update_pull, 1u);
  EXPECT_EQ(cache()->counters().notified_rows, 1u);
  Drained();
}

// Hashes go in full until both sides have them, and the partition names those that moved; nothing is refused.
TEST_F(Notified, HashesAreNamedOnceTheyAreKnown) {
  WorldConfig config = NotifiedConfig(2);
  config.client.far_keys = 0;
  Make(config);
  Hold(0, {1, 2, 3, kOther});
  net(0).record = true;
  for (int i = 0; i < 3; ++i) Train(1, {1, 2});
  EXPECT_EQ(SeenThen(0, 1, 1), 3) << "named by the answer, and fetched by its name";
  Train(0, {1, 2, 3});
  size_t names = 0;
  for (const Request& request : Sent(0)) {
    for (const TableRequest& t : request.tables) {
      EXPECT_NE(t.ring, 0u);
      EXPECT_FALSE(t.anew);
      names += t.names.push.size() + t.names.fetch.size();
      EXPECT_EQ(t.push_keys.size() + t.fetch_keys.size(), 0u);
    }
  }
  EXPECT_GE(names, 4u);
  EXPECT_EQ(cache()->counters().resends, 0u);
  Drained();
}

// An answer may be as old as the previous lookup: rows are checked if that lookup's answer is missing, or was
// from other partitions.
TEST_F(Notified, RowsWithoutARecentAnswerAreChecked) {
  WorldConfig config = NotifiedConfig(2);
  config.partitions = 2;
  Make(config);
  const auto partition = [&](Key key) {
    return Layout(world().service().id(0)).OfKey(world().schema(0)->id(), key);
  };
  std::vector<Key> keys[2];
  for (Key key = 1; keys[0].size() < 2 || keys[1].size() < 2; ++key) keys[partition(key)].push_back(key);
  const Key here = keys[0][0], there = keys[1][0];
  Hold(0, {here, there});
  net(0).record = true;
  Read(0, {here, there});
  Read(0, {here});
  EXPECT_EQ(checks(), 0u);
  Read(0, {here, there});
  EXPECT_EQ(checks(), 1u) << "one for the row whose partition was not asked";
  Read(0, {here, there});
  EXPECT_EQ(checks(), 1u);
  net(0).HoldReplies(0, true);
  Read(0, {here, there});
  auto step = world().NewStep({{here, there}});
  const auto op = world().BeginRead(0, step.get(), true);
  world().client(0).Progress(0);
  EXPECT_FALSE(op->done());
  EXPECT_EQ(checks(), 2u) << "one more for the row whose partition has not answered";
  net(0).HoldReplies(0, false);
  Finish(0, op.get(), step.get());
  Drained();
}

// Its answer would be about a cache that is gone.
TEST_F(Notified, NobodyWantsTheAnswerAboutATableThatIsRemoved) {
  Make(2);
  Hold(0, {1, 2});
  net(0).HoldReplies(0, true);
  Read(0, {1, 2});
  world().client(0).Progress(0);
  const PartitionReadPtr question = session(0).outstanding().back().read;
  EXPECT_TRUE(question->wanted());
  world().client(0).RemoveTable(world().schema(0)->id());
  EXPECT_FALSE(question->wanted());
}

// The first copy is evicted, then a late answer brings the row back: the client must not unsubscribe.
TEST_F(Notified, ReturnedRowStaysSubscribed) {
  Make(1);
  Hold(0, {9});
  std::vector<std::unique_ptr<TestStep>> steps;
  std::vector<std::unique_ptr<ReadOp>> ops;
  net(0).HoldReplies(0, true);
  for (int i = 0; i < 2; ++i) {
    steps.push_back(world().NewStep({{1}}));
    ops.push_back(world().BeginRead(0, steps[i].get(), true));
    world().client(0).Progress(0);
  }
  net(0).HoldReplies(0, false);
  net(0).seconds_a_reply = 5;
  while (!ops[0]->done()) world().client(0).Progress(0);
  ASSERT_FALSE(ops[1]->done());
  ASSERT_TRUE(world().FinishRead(0, ops[0].get(), steps[0].get()).ok());
  for (auto& [where, part] : steps[0]->parts()) part.touched.assign(part.touched.size(), 0);
  Write(0, steps[0].get());
  world().client(0).ForgetClean();
  ASSERT_EQ(cache()->lines().Find(1), kNoRow);
  Finish(0, ops[1].get(), steps[1].get());
  net(0).seconds_a_reply = 0;
  Read(0, {9});
  for (int i = 0; i < 2; ++i) Train(1, {1});
  EXPECT_EQ(SeenThen(0, 1, 1), 2);
  Drained();
}

// A push says which of its rows were evicted, and also has those whose bound is due.
TEST_F(Notified, EvictionsWithUpdatesTakeNoFurtherBytes) {
  WorldConfig config = NotifiedConfig(3);
  config.cache.push_bound = 1;
  config.cache.capacity = 2;
  Make(config);
  Train(0, {1, 2});
  net(0).record = true;
  Train(0, {1, 3});
  const std::vector<Request> sent = Sent(0);
  ASSERT_EQ(sent.size(), 2u) << "a lookup, and one push";
  const TableRequest& push = sent[1].tables.at(0);
  EXPECT_EQ(push.push_keys, Vector<Key>({1, 2}));
  EXPECT_EQ(push.left, 1u);
  Train(0, {4, 5});
  Train(0, {4, 5});
  EXPECT_EQ(subscribers().held(), 2u);
  size_t dropped = 0;
  for (const Request& request : Sent(0)) dropped += request.tables.at(0).dropped.size();
  EXPECT_EQ(dropped, 1u) << "row 1, which had no ticks to push";
  Drained();
}

// A push from before the first answer, sent with a later request, must not report evictions: that answer may
// bring the rows back.
TEST_F(Notified, EvictionsAreNotReportedBeforeAnAnswer) {
  WorldConfig config = NotifiedConfig(3);
  config.cache.push_bound = 9;
  config.cache.capacity = 2;
  for (const Checks checks : {Checks::kAsked, Checks::kNotified}) {
    config.cache.checks = checks;
    Make(config);
    for (Key key = 1; key < 7; key += 2) Train(0, {key, key + 1});
    ASSERT_GE(log(0).frames().size(), 2u);
    for (const PushFrame& frame : log(0).frames()) {
      EXPECT_EQ(frame.tables.at(0).left, frame.notified_ack == 0 ? 0u : 2u);
      EXPECT_EQ(frame.notified_ack == 0, config.cache.checks == Checks::kAsked);
    }
    Drained();
  }
}

TEST_F(Notified, LostSubscriptionsCauseChecks) {
  Make(1);
  Hold(0, {1, 2, kOther});
  for (int i = 1; i <= 3; ++i) {
    subscribers().Clear();
    for (int ticks = 0; ticks < 2; ++ticks) Train(1, {1});
    EXPECT_EQ(SeenThen(0, 1, 1), 2 * i);
    EXPECT_EQ(Seen(0, 1, 1), 2 * i);
  }
  EXPECT_EQ(cache()->counters().subscription_resets, 3u);
  EXPECT_EQ(checks(), 4u) << "each time for the row, and once for the other, to which reads then subscribe";
  Drained();
}

TEST_F(Notified, ReadsWithoutTrainingCheckAndHoldNothing) {
  Make(1);
  Hold(0, {1});
  Read(0, {2, 3}, /*training=*/false);
  EXPECT_EQ(subscribers().held(), 1u);
  for (int i = 0; i < 2; ++i) Train(1, {1, 2});
  auto step = Read(0, {1, 2}, false);
  EXPECT_EQ(step->Value(At(1).first, 1)[1], kInitial - 2) << "at once";
  EXPECT_EQ(step->Value(At(2).first, 2)[1], kInitial - 2);
  EXPECT_EQ(checks(), 1u);
  Drained();
}

}  // namespace
}  // namespace het::testing
