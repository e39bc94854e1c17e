// Lookups that begin before their time: what is asked, and when; what the lookup sees; what drops them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <set>

#include "tests/cpp/testing/held_lines.h"
#include "tests/cpp/testing/world/world_test.h"

namespace het::testing {
namespace {

class Early : public WorldTest {
 protected:
  // A lookup of these keys, which begins now.
  std::unique_ptr<TestStep> Begin(const std::vector<Key>& keys, size_t w = 0) {
    auto step = world().NewStep({keys});
    world().ReadEarly(w, step.get());
    return step;
  }
  // Its lookup comes.
  void Come(TestStep* step, size_t w = 0) {
    const Status status = world().Read(w, step);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  void Step(TestStep* step, size_t w = 0) {
    Come(step, w);
    Write(w, step);
  }
  // A world whose workers have heard of the table's epoch: a first request is answered with that alone.
  void MakeKnown(const WorldConfig& config) {
    Make(config);
    for (size_t w = 0; w < config.workers; ++w) Read(w, {777}, /*training=*/false);
  }
  void Settle(size_t w = 0) { world().client(w).Progress(0); }
  bool OnWay(size_t w = 0) { return world().client(w).EarlyOnWay(); }
  // All keys that the worker has asked the server to send, or to compare, since it was asked last.
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

// Would find one that asks at its lookup, or twice.
TEST_F(Early, AsksWhenItBeginsAndNothingAtItsLookup) {
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

TEST_F(Early, ItsLookupWaitsForAnswersThatAreMissing) {
  MakeKnown(Bounded(3));
  net().HoldRepliesFor(0, 0.5);
  auto step = Begin({1, 2});
  EXPECT_TRUE(OnWay());
  Step(step.get());
  EXPECT_FALSE(OnWay());
  Drained();
}

// I4: the step before ticks the same rows after the read has begun, with its answers here or on their way.
TEST_F(Early, OwnTicksMadeMeanwhileAreSeen) {
  for (const bool on_way : {false, true}) {
    MakeKnown(Bounded(kUnbounded));
    auto first = Read(0, {1, 2});
    if (on_way) net().HoldRepliesFor(0, 0.5);
    auto next = Begin({1, 2, 3});
    Write(0, first.get());
    Come(next.get());
    EXPECT_EQ(next->Value(At(1).first, 1)[0], kInitial - 1);
    Write(0, next.get());
    Drained();
  }
}

// I2 counts from the beginning: a push that comes later is seen by the lookup after.
TEST_F(Early, PushesSinceItBeganAreTheNextLookupsToSee) {
  WorldConfig config = Bounded(1);
  config.workers = 2;
  config.cache.push_bound = 0;
  MakeKnown(config);
  Train(0, {1});
  auto step = Begin({1});
  for (int i = 0; i < 5; ++i) Train(1, {1});
  Come(step.get());
  EXPECT_EQ(step->Value(At(1).first, 1)[1], kInitial);
  EXPECT_LE(Read(0, {1})->Value(At(1).first, 1)[1], kInitial - 4);
}

// What changes rows behind the cache's back must not be undone by an answer from before.
TEST_F(Early, RowsThatWereChangedAreReadAgain) {
  MakeKnown(Bounded(kUnbounded));
  net().HoldReplies(0, true);
  auto step = Begin({1, 2});
  const Key key = 1;
  world().client(0).Invalidate(world().schema(0)->id(), Span<const Key>(&key, 1));
  EXPECT_FALSE(OnWay());
  net().HoldReplies(0, false);
  Settle();
  EXPECT_EQ(cache()->lines().size(), 0u) << "the answer is for nobody";
  net().record = true;
  Step(step.get());
  EXPECT_EQ(Asked(&TableRequest::fetch_keys), Vector<Key>({1, 2}));
  Drained();
}

// An earlier state of the partition comes to life, and the worker hears of it before the lookup: what the
// early read brought is not there any more.
TEST_F(Early, ANewIncarnationIsAskedAgain) {
  WorldConfig config = Bounded(3);
  config.workers = 2;
  config.cache.push_bound = 0;
  MakeKnown(config);
  const Bytes before = world().Snapshot(0);
  for (int i = 0; i < 3; ++i) Train(1, {1});
  auto step = Begin({1});
  ASSERT_FALSE(OnWay());
  world().Failover(0, before);
  Read(0, {777}, /*training=*/false);  // hears of it
  Come(step.get());
  EXPECT_EQ(step->Value(At(1).first, 1)[1], kInitial);
  Abandon();
}

TEST_F(Early, ATableThatGoesTakesItsReadsAlong) {
  WorldConfig config = Bounded(3);
  config.tables = 2;
  Make(config);
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
  Abandon();
}

// An iterator that was left: nothing is asked for it any more, and its rows may leave.
TEST_F(Early, OneWhoseLookupNeverComesIsLetGo) {
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

// A server that is away: the beginning says nothing, the lookup says it, and all goes on when it is back.
TEST_F(Early, TroubleIsTheLookupsToTell) {
  WorldConfig config = Bounded(3);
  config.client.request_timeout = 1;
  config.client.deadline = 5;
  Make(config);
  net().faults.cut = 1;
  auto step = Begin({1, 2});
  const Status status = world().Read(0, step.get());
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.message();
  EXPECT_NE(status.message().find("a lookup"), std::string::npos) << status.message();
  net().faults = Faults::None();
  Train(0, {1, 2});
  EXPECT_EQ(HeldLines(*cache()), 0u);
  Drained();
}

// So is a table that somebody has dropped: lookups of others do not hear of it.
TEST_F(Early, ATableThatWasDroppedIsItsOwnLookupsToTell) {
  WorldConfig config = Bounded(3);
  config.tables = 2;
  Make(config);
  auto both = world().NewStep({{1}, {1}});
  ASSERT_TRUE(world().Read(0, both.get()).ok());
  world().service().DropTable(world().schema(0)->id());
  net().HoldRepliesFor(0, 0.2);
  auto early = world().NewStep({{2}, {}});
  world().ReadEarly(0, early.get());
  Client& client = world().client(0);
  const Status other = client.Read(world().NewStep({{}, {1}})->MakeRead(), world().NewToken());
  EXPECT_TRUE(other.ok()) << other.message();
  const Status gone = client.Read(early->MakeRead(), early->token);
  EXPECT_EQ(gone.code(), Code::kFailedPrecondition);
  EXPECT_NE(gone.message().find("no table"), std::string::npos) << gone.message();
  Abandon();
}

// Rows of one worker are the same to the last bit, whatever leaves the cache, and when.
TEST_F(Early, OneWorkerIsBitForBitTheSame) {
  for (const char* optimizer : {"adagrad", "row_wise_adagrad", "adam", "ftrl", "sgd"}) {
    std::vector<std::vector<float>> rows[2];
    for (int early = 0; early < 2; ++early) {
      WorldConfig config = Bounded(3, 7);
      config.optimizer = optimizer;
      config.dim = 3;
      config.partitions = 3;
      config.tolerance = 1e-4f;
      config.cache.push_bound = 0;
      Make(config);
      Random keys(11);
      const auto batch = [&] {
        return std::vector<Key>{keys.Between(0, 12), keys.Between(0, 40), keys.Between(0, 40)};
      };
      auto step = world().NewStep({batch()});
      for (int i = 0; i < 400; ++i) {
        Come(step.get());
        auto next = world().NewStep({batch()});
        if (early) world().ReadEarly(0, next.get());
        Write(0, step.get());
        step = std::move(next);
      }
      for (Key key = 0; key <= 40; ++key) rows[early].push_back(world().ServerRow(At(key)));
    }
    for (size_t k = 0; k < rows[0].size(); ++k) {
      ASSERT_EQ(rows[0][k].size(), rows[1][k].size());
      EXPECT_EQ(std::memcmp(rows[0][k].data(), rows[1][k].data(), rows[0][k].size() * sizeof(float)), 0)
          << optimizer << ", key " << k;
    }
  }
}

}  // namespace
}  // namespace het::testing
