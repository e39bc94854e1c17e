// checks="told": the partition knows what a client holds and tells it what has moved (core/store/holdings.h).
// What happens by chance is in schedules_test.cc, half of whose worlds are told.
#include "het_tf/core/store/local_store.h"
#include "tests/cpp/testing/world/world_test.h"

namespace het::testing {
namespace {

class Told : public WorldTest {
 protected:
  using WorldTest::Make;
  void Make(int64_t bound, uint32_t workers = 2, size_t capacity = 1000, uint32_t tables = 1) {
    WorldConfig config = Bounded(bound, capacity);
    config.workers = workers;
    config.tables = tables;
    config.cache.push_bound = 0;
    config.cache.checks = "told";
    config.client.durability = Durability::kCheckpoint;
    Make(config);
  }
  // Until worker w counts these keys as held, and knows the epochs.
  void Hold(size_t w, const std::vector<Key>& keys) { Train(w, keys); }
  Holdings& holdings() {
    return *world().service().WithPartition(0, [](Partition& p) { return &p.holdings(); });
  }
  uint64_t checks(size_t w = 0) { return cache(w)->counters().checks; }
  // Ticks of worker `of` that worker w sees.
  int64_t Seen(size_t w, Key key, size_t of) {
    return static_cast<int64_t>(kInitial - Read(w, {key})->Value(At(key).first, key)[of]);
  }
};

TEST_F(Told, HeldRowsAreNotAskedAbout) {
  Make(2);
  Hold(0, {1, 2, 3});
  const uint64_t before = checks();
  net(0).record = true;
  for (int i = 0; i < 5; ++i) Read(0, {1, 2, 3});
  EXPECT_EQ(checks(), before);
  for (const Request& request : Sent(0)) {
    EXPECT_TRUE(request.tell);
    EXPECT_TRUE(request.tables.at(0).check_keys.empty());
  }
  for (int i = 0; i < 2; ++i) Train(1, {1});
  EXPECT_EQ(Seen(0, 1, 1), 0) << "within the bound";
  Train(1, {1});
  EXPECT_EQ(Seen(0, 2, 1), 0);
  EXPECT_EQ(cache()->counters().told_rows, 1u) << "told with a read of another row";
  EXPECT_EQ(Seen(0, 1, 1), 3);
  EXPECT_EQ(checks(), before);
  Drained();
}

TEST_F(Told, AnAnswerThatIsLostIsToldAgain) {
  for (size_t applied : {0, 1}) {
    Make(0);
    Hold(0, {1, 2});
    Train(1, {1});
    auto step = world().NewStep({{2}});
    net(0).HoldRequests(0, true);
    auto op = world().BeginRead(0, step.get(), true);
    world().client(0).Progress(0);
    net(0).Cut(0, applied);  // with 1, the partition has told, and nobody has heard it
    net(0).HoldRequests(0, false);
    while (!op->done()) world().client(0).Progress(0.05);
    EXPECT_TRUE(world().FinishRead(0, op.get(), step.get()).ok());
    EXPECT_EQ(Seen(0, 1, 1), 1);
    EXPECT_EQ(cache()->counters().told_resets, 0u);
    EXPECT_EQ(checks(), 0u);
  }
}

TEST_F(Told, AnAnswerThatNobodyWaitsForIsToldAgain) {
  Make(0);
  Hold(0, {1, 2});
  Train(1, {1});
  auto step = world().NewStep({{2}});
  net(0).HoldReplies(0, true);
  auto op = world().BeginRead(0, step.get(), true);
  world().client(0).Progress(0);
  EXPECT_FALSE(world().client(0).FinishRead(op.get()).ok()) << "abandoned";
  net(0).HoldReplies(0, false);
  EXPECT_EQ(Seen(0, 1, 1), 1);
  EXPECT_EQ(checks(), 0u);
}

// The frame names a second table because of a push; the read is of the first one alone.
TEST_F(Told, ATableThatOnlyAPushNames) {
  Make(0, 2, 1000, /*tables=*/2);
  auto read = [&](size_t w, const std::vector<std::vector<Key>>& keys) {
    auto step = world().NewStep(keys);
    EXPECT_TRUE(world().Read(w, step.get()).ok());
    return step;
  };
  Write(0, read(0, {{1}, {1, 2}}).get());
  auto pushed = read(0, {{}, {2}});
  Write(1, read(1, {{}, {1}}).get());
  auto step = world().NewStep({{1}});
  auto op = world().BeginRead(0, step.get(), true);
  Write(0, pushed.get());  // leaves with the read
  while (!op->done()) world().client(0).Progress(0.05);
  ASSERT_TRUE(world().FinishRead(0, op.get(), step.get()).ok());
  EXPECT_EQ(world().client(0).Stats(world().schema(1)->id()).told_rows, 1u);
  const TableKey second = {world().schema(1)->id(), 1};
  EXPECT_EQ(read(0, {{}, {1}})->Value(second.first, second.second)[1], kInitial - 1);
  Drained();
}

// Two reads fetch one row; between them the partition forgets the client, and the row moves. What it notes
// with the second answer must be what the client has then.
TEST_F(Told, ARowThatTwoReadsFetchIsTheNewerOne) {
  Make(0);
  Hold(0, {9});
  std::vector<std::unique_ptr<TestStep>> steps;
  std::vector<std::unique_ptr<ReadOp>> ops;
  net(0).HoldRequests(0, true);
  for (int i = 0; i < 2; ++i) {
    steps.push_back(world().NewStep({{1}}));
    ops.push_back(world().BeginRead(0, steps[i].get(), true));
    world().client(0).Progress(0);
  }
  ASSERT_EQ(net(0).requests(0), 2u);
  net(0).Serve(0);
  holdings().Clear();
  Train(1, {1});
  net(0).HoldRequests(0, false);
  for (int i = 0; i < 2; ++i) {
    while (!ops[i]->done()) world().client(0).Progress(0.05);
    ASSERT_TRUE(world().FinishRead(0, ops[i].get(), steps[i].get()).ok());
  }
  EXPECT_EQ(Seen(0, 1, 1), 1);
  Drained();
}

// The first copy has left when an answer that was on its way brings the row back: it is not let go then.
TEST_F(Told, ARowThatLeftAndIsBackIsNotLetGo) {
  Make(0);
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
  while (!ops[1]->done()) world().client(0).Progress(0.05);
  ASSERT_TRUE(world().FinishRead(0, ops[1].get(), steps[1].get()).ok());
  net(0).seconds_a_reply = 0;
  Read(0, {9});
  Train(1, {1});
  EXPECT_EQ(Seen(0, 1, 1), 1);
  Drained();
}

TEST_F(Told, WhatLeavesTheCacheIsLetGo) {
  Make(3, 1, /*capacity=*/2);
  Train(0, {1, 2});
  Train(0, {3, 4});
  Train(0, {5, 6});
  Train(0, {5, 6});
  EXPECT_EQ(holdings().held(), 2u);
  Drained();
}

TEST_F(Told, ANewLifeHoldsNothing) {
  Make(3);
  Hold(0, {1, 2});
  Read(0, {1, 2});
  world().Restart(0, world().Snapshot(0));
  EXPECT_EQ(holdings().held(), 0u);
  for (int i = 0; i < 4; ++i) Train(1, {1});
  EXPECT_EQ(Seen(0, 1, 1), 4);
  Drained();
}

TEST_F(Told, ForgottenHoldingsAreAskedAbout) {
  Make(0);
  Hold(0, {1, 2});
  for (int i = 1; i <= 3; ++i) {
    holdings().Clear();
    Train(1, {1});
    EXPECT_EQ(Seen(0, 1, 1), i);
    EXPECT_EQ(Seen(0, 1, 1), i);
  }
  EXPECT_EQ(cache()->counters().told_resets, 3u);
  EXPECT_EQ(checks(), 3u) << "once each";
  Drained();
}

TEST_F(Told, MoreThanMayBeHeldIsAskedAbout) {
  WorldConfig config = Bounded(0);
  config.workers = 2;
  config.cache.checks = "told";
  config.most_held = 3;
  Make(config);
  for (int i = 0; i < 5; ++i) {
    Train(0, {1, 2, 3, 4, 5});
    EXPECT_LE(holdings().held(), 3u);
    Train(1, {4});
    EXPECT_EQ(Seen(0, 4, 1), i + 1);
  }
  Drained();
}

TEST_F(Told, ReadsWithoutTrainingHoldNothingAndAreTold) {
  Make(0);
  Hold(0, {1});
  Read(0, {2, 3}, /*training=*/false);
  EXPECT_EQ(holdings().held(), 1u);
  Train(1, {1, 2});
  auto step = Read(0, {1, 2}, false);
  EXPECT_EQ(step->Value(At(1).first, 1)[1], kInitial - 1);
  EXPECT_EQ(step->Value(At(2).first, 2)[1], kInitial - 1);
  Drained();
}

TEST_F(Told, RowsThatAreChangedByHandAreSeen) {
  Make(0, 1);
  Hold(0, {1, 2});
  LocalStore store(&world().service());
  const std::vector<float> row(world().schema(0)->dim(), 7);
  const Key key = 1;
  ASSERT_TRUE(store.Assign(*world().schema(0), Span<const Key>(&key, 1), row.data(), false).ok());
  auto step = world().NewStep({{1}});
  ASSERT_TRUE(world().client(0).Read(step->MakeRead(), world().NewToken()).ok());
  EXPECT_EQ(step->Value(At(1).first, 1)[0], 7);
  ASSERT_EQ(store.Remove(*world().schema(0), Span<const Key>(&key, 1)).value(), 1u);
  ASSERT_TRUE(world().client(0).Read(step->MakeRead(), world().NewToken()).ok());
  EXPECT_EQ(step->Value(At(1).first, 1)[0], kInitial);
  world().service().ClearTable(world().schema(0)->id());
  ASSERT_TRUE(world().client(0).Read(step->MakeRead(), world().NewToken()).ok());
  EXPECT_EQ(step->Value(At(1).first, 1)[0], kInitial);
  Abandon();
}

TEST_F(Told, ARowThatIsSweptIsTold) {
  WorldConfig config = Bounded(3);
  config.workers = 2;
  config.cache.push_bound = 0;
  config.cache.checks = "told";
  config.limits = TableLimits();
  config.limits->ttl = 100;
  Make(config);
  auto train = [&](size_t w, Key key) {
    auto step = world().NewStep({{key}});
    ASSERT_TRUE(world().client(w).Read(step->MakeRead(), 1000 + w).ok());
    for (auto& [where, part] : step->parts()) part.sums[w] = 1;
    ASSERT_TRUE(world().client(w).Write(step->MakeWrite(1), 1000 + w, nullptr).ok());
  };
  train(0, 1);
  train(1, 1);
  world().now += 200;
  train(1, 2);
  train(1, 2);
  ASSERT_EQ(world().ServerClock(At(1)), 0);
  auto step = world().NewStep({{1}});
  ASSERT_TRUE(world().client(0).Read(step->MakeRead(), 5000).ok());
  EXPECT_EQ(step->Value(At(1).first, 1)[0], kInitial);
  EXPECT_EQ(cache()->counters().told_resets, 0u);
  Abandon();
}

// A bound that is set while an answer is on its way: the request did not ask to hold the rows.
TEST_F(Told, RowsThatWereNotAskedToBeHeldAreNot) {
  Make(0, 2, 1000, /*tables=*/2);
  const uint64_t first = world().schema(0)->id(), second = world().schema(1)->id();
  auto read = [&](size_t w, const std::vector<std::vector<Key>>& keys) {
    auto step = world().NewStep(keys);
    EXPECT_TRUE(world().Read(w, step.get()).ok());
    return step;
  };
  Write(0, read(0, {{1}, {9}}).get());
  world().client(0).cache(second)->set_bounds(kUnbounded, 0);
  auto step = world().NewStep({{1, 2}, {1}});
  net(0).HoldReplies(0, true);
  auto op = world().BeginRead(0, step.get(), true);
  world().client(0).Progress(0);
  world().client(0).cache(second)->set_bounds(0, 0);
  net(0).HoldReplies(0, false);
  while (!op->done()) world().client(0).Progress(0.05);
  ASSERT_TRUE(world().FinishRead(0, op.get(), step.get()).ok());
  ASSERT_TRUE(cache()->subscribed(cache()->lines().Find(2))) << "of table " << first;
  Write(1, read(1, {{}, {1}}).get());
  EXPECT_EQ(read(0, {{}, {1}})->Value(second, 1)[1], kInitial - 1);
  Drained();
}

// With rounded updates a flush may send what is left of ticks whose row is gone: it makes none, and nothing
// is to be noted of it.
TEST_F(Told, ARemainderOfARowThatIsGone) {
  WorldConfig config = Bounded(3);
  config.workers = 2;
  config.optimizer = "momentum";
  config.dim = 8;
  config.tolerance = 1;
  config.cache.push_bound = 0;
  config.cache.checks = "told";
  config.cache.wire = RowFormat::kInt8;
  Make(config);
  for (size_t w : {0, 1}) Train(w, {1, 2});
  ASSERT_TRUE(cache()->HasUnsent(cache()->lines().Find(1)));
  LocalStore store(&world().service());
  const Key key = 1;
  ASSERT_EQ(store.Remove(*world().schema(0), Span<const Key>(&key, 1)).value(), 1u);
  // Who holds it is forgotten then: worker 1 holds it anew, as a row that nobody has written.
  for (size_t w : {0, 1}) {
    auto step = world().NewStep({{1, 2}});
    ASSERT_TRUE(world().client(w).Read(step->MakeRead(), world().NewToken()).ok());
  }
  ASSERT_GE(holdings().held(), 4u);
  const uint64_t told = holdings().told();
  ASSERT_TRUE(world().client(0).Flush().ok());
  EXPECT_EQ(world().ServerClock(At(1)), 0);
  auto step = world().NewStep({{1, 2}});
  ASSERT_TRUE(world().client(1).Read(step->MakeRead(), world().NewToken()).ok());
  EXPECT_NEAR(step->Value(At(1).first, 1)[0], kInitial, 0.01f) << "with its own remainder";
  EXPECT_EQ(holdings().told(), told);
  Abandon();
}

TEST(ToldOptions, AreWordsThatAreKnown) {
  LocalService service(1);
  FaultyTransport transport(&service, 1);
  Client client(&transport);
  TableSpec spec;
  spec.name = "t";
  spec.dim = 2;
  CacheConfig config;
  config.checks = "never";
  const Status refused = client.AddTable(TableSchema::Create(spec).value(), config);
  EXPECT_EQ(refused.message(), "checks is 'never'; it must be \"asked\" or \"told\"");
}

}  // namespace
}  // namespace het::testing
