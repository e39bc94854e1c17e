// Rows of batches whose lookups will come: what is asked for, what is held, and what a lookup sees.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <set>

#include "tests/cpp/testing/world/world_test.h"

namespace het::testing {
namespace {

class Prefetching : public WorldTest {
 protected:
  void Prefetch(const std::vector<Key>& keys, size_t w = 0) { world().Prefetch(w, {keys}); }
  // A world whose workers have heard of the table's epoch: a first request is answered with that alone.
  void MakeKnown(const WorldConfig& config) {
    Make(config);
    for (size_t w = 0; w < config.workers; ++w) Read(w, {777}, /*training=*/false);
  }
  // Answers that are here are taken in.
  void Settle(size_t w = 0) { world().client(w).Progress(0); }
  bool OnWay(size_t w = 0) { return world().client(w).AheadOnWay(); }
  // All keys that the worker has asked the server to send, or to compare, since it was asked last.
  Vector<Key> Fetched(size_t w = 0) { return Asked(w, &TableRequest::fetch_keys); }
  Vector<Key> Asked(size_t w, Vector<Key> TableRequest::*which) {
    Vector<Key> keys;
    for (const Request& request : Sent(w)) {
      for (const TableRequest& table : request.tables) {
        keys.insert(keys.end(), (table.*which).begin(), (table.*which).end());
      }
    }
    return keys;
  }
};

TEST_F(Prefetching, AsksForWhatIsMissingAndNothingElse) {
  Make(Bounded(0));
  Train(0, {1, 2});
  net().record = true;
  Prefetch({1, 2, 3, 4});
  EXPECT_EQ(Fetched(), Vector<Key>({3, 4}));
  auto step = Read(0, {1, 2, 3, 4});
  const std::vector<Request> sent = Sent(0);
  ASSERT_EQ(sent.size(), 1u);  // one question, as without
  EXPECT_EQ(sent[0].tables[0].check_keys.size(), 4u);
  EXPECT_TRUE(sent[0].tables[0].fetch_keys.empty());
  Write(0, step.get());
  EXPECT_EQ(cache()->counters().prefetched, 2u);
  EXPECT_EQ(cache()->counters().prefetch_late, 0u);
  EXPECT_EQ(cache()->counters().prefetch_unused, 0u);
  EXPECT_EQ(cache()->counters().hits, 4u);
  EXPECT_EQ(cache()->counters().transient_rows, 0u);
  EXPECT_EQ(cache()->Held(), 0u);
  Drained();
}

TEST_F(Prefetching, UnboundedALookupOfAPrefetchedBatchAsksNothing) {
  Make(Bounded(kUnbounded));
  Prefetch({1, 2, 3});
  Settle();
  net().record = true;
  Train(0, {1, 2, 3});
  EXPECT_TRUE(Sent(0).empty());
  Drained();
}

TEST_F(Prefetching, ALookupWaitsForRowsOnTheirWayAndThenChecksThem) {
  MakeKnown(Bounded(0));
  net().HoldReplies(0, true);
  Prefetch({1, 2});
  ASSERT_TRUE(OnWay());
  net().record = true;
  auto step = world().NewStep({{1, 2, 3}});
  auto op = world().BeginRead(0, step.get(), true);
  Settle();
  EXPECT_EQ(Fetched(), Vector<Key>({3}));  // 1 and 2 are on their way
  EXPECT_FALSE(op->done());
  net().HoldReplies(0, false);
  for (int i = 0; i < 10 && !op->done(); ++i) Settle();
  EXPECT_EQ(Asked(0, &TableRequest::check_keys), Vector<Key>({1, 2}));
  ASSERT_TRUE(world().FinishRead(0, op.get(), step.get()).ok());
  Write(0, step.get());
  EXPECT_EQ(cache()->counters().prefetch_late, 2u);
  EXPECT_EQ(cache()->Held(), 0u);
  Drained();
}

TEST_F(Prefetching, UnboundedRowsOnTheirWayAreWaitedForAndNotAskedForAgain) {
  MakeKnown(Bounded(kUnbounded));
  net().HoldReplies(0, true);
  Prefetch({1, 2});
  net().record = true;
  auto step = world().NewStep({{1, 2}});
  auto op = world().BeginRead(0, step.get(), true);
  Settle();
  EXPECT_FALSE(op->done());
  net().HoldReplies(0, false);
  for (int i = 0; i < 10 && !op->done(); ++i) Settle();
  EXPECT_TRUE(Sent(0).empty());
  ASSERT_TRUE(world().FinishRead(0, op.get(), step.get()).ok());
  Write(0, step.get());
  Drained();
}

// I2 counts from the lookup: what others pushed after the rows were fetched ahead is seen.
TEST_F(Prefetching, PushesBetweenThePrefetchAndItsLookupAreSeen) {
  WorldConfig config = Bounded(0);
  config.workers = 2;
  Make(config);
  Prefetch({1});
  Settle();
  Train(1, {1});
  EXPECT_EQ(Read(0, {1})->Value(At(1).first, 1)[1], kInitial - 1);
  // The same while the rows are on their way: the server has answered already.
  net().HoldReplies(0, true);
  Prefetch({2});
  Train(1, {2});
  auto step = world().NewStep({{2}});
  auto op = world().BeginRead(0, step.get(), true);
  net().HoldReplies(0, false);
  for (int i = 0; i < 10 && !op->done(); ++i) Settle();
  ASSERT_TRUE(world().FinishRead(0, op.get(), step.get()).ok());
  EXPECT_EQ(step->Value(At(2).first, 2)[1], kInitial - 1);
}

TEST_F(Prefetching, TwoBatchesWithTheSameKeysAskOnce) {
  MakeKnown(Bounded(0, 10));
  net().HoldReplies(0, true);
  net().record = true;
  Prefetch({1, 2});
  Prefetch({2, 3});
  EXPECT_EQ(Fetched(), Vector<Key>({1, 2, 3}));
  net().HoldReplies(0, false);
  Settle();
  EXPECT_FALSE(OnWay());
  EXPECT_EQ(cache()->Held(), 3u);
  Train(0, {1, 2});
  EXPECT_EQ(cache()->Held(), 2u);  // of the second batch
  Train(0, {2, 3});
  EXPECT_EQ(cache()->Held(), 0u);
  EXPECT_EQ(cache()->counters().miss_pull, 4u);  // one of them the first of all
  Drained();
}

TEST_F(Prefetching, RowsOfAComingBatchAreNoVictims) {
  Make(Bounded(kUnbounded, 3));
  Train(0, {1, 2});
  Prefetch({1, 2});
  for (Key key = 10; key < 20; ++key) Train(0, {key});
  EXPECT_NE(cache()->lines().Find(1), kNoRow);
  EXPECT_NE(cache()->lines().Find(2), kNoRow);
  Train(0, {1, 2});
  for (Key key = 10; key < 20; ++key) Train(0, {key});
  EXPECT_EQ(cache()->lines().Find(1), kNoRow);
  EXPECT_EQ(cache()->lines().Find(2), kNoRow);
  Drained();
}

TEST_F(Prefetching, HoldsNoMoreThanTheCacheMayHave) {
  Make(Bounded(0, 4));
  Prefetch({1, 2, 3});
  Prefetch({4, 5, 6, 7});
  Settle();
  EXPECT_EQ(cache()->Held(), 4u);
  EXPECT_EQ(cache()->lines().size(), 4u);
  Train(0, {1, 2, 3});
  Train(0, {4, 5, 6, 7});
  EXPECT_EQ(cache()->Held(), 0u);
  EXPECT_LE(cache()->lines().size(), 4u);
  Drained();
}

TEST_F(Prefetching, WithoutACacheThereIsNothingToDo) {
  Make(Bounded(0, 0));
  net().record = true;
  Prefetch({1, 2, 3});
  EXPECT_TRUE(Sent(0).empty());
  EXPECT_FALSE(OnWay());
  Train(0, {1, 2, 3});
  Drained();
}

// The policy and the admission filter hear of a row when it is looked up.
TEST_F(Prefetching, RowsAreAdmittedAsWithoutIt) {
  Counters counters[2];
  for (int prefetch = 0; prefetch < 2; ++prefetch) {
    WorldConfig config = Bounded(0, 6);
    config.cache.admit_after = 2;
    Make(config);
    Random r(5);
    for (int i = 0; i < 300; ++i) {
      const std::vector<Key> keys = {r.Between(0, 4), r.Between(5, 9)};
      if (prefetch) Prefetch(keys);
      Train(0, keys);
    }
    counters[prefetch] = cache()->counters();
    Drained();
  }
  EXPECT_EQ(counters[0].inserts, counters[1].inserts);
  EXPECT_EQ(counters[0].transient_rows, counters[1].transient_rows);
  EXPECT_EQ(counters[0].miss_pull, counters[1].miss_pull);
  EXPECT_GT(counters[1].prefetched, 0u);
}

TEST_F(Prefetching, ABatchOfAnInferenceIsReadAndNotAdmitted) {
  MakeKnown(Bounded(0));
  Prefetch({1, 2});
  EXPECT_EQ(cache()->Held(), 2u);
  Read(0, {1, 2}, /*training=*/false);
  EXPECT_EQ(cache()->Held(), 0u);
  EXPECT_EQ(cache()->counters().inserts, 0u);
  Train(0, {3});
  EXPECT_EQ(cache()->lines().size(), 1u);
  EXPECT_EQ(cache()->counters().prefetch_unused, 0u);
}

TEST_F(Prefetching, ABatchThatIsNeverLookedUpIsLetGo) {
  Make(Bounded(0, 100));
  Prefetch({1, 2});
  for (Key key = 0; key < 200; ++key) Train(0, {1000 + key});
  EXPECT_EQ(cache()->Held(), 0u);
  EXPECT_EQ(cache()->lines().Find(1), kNoRow);
  EXPECT_EQ(cache()->counters().prefetch_unused, 2u);
  Drained();
}

// What changes rows behind the cache's back must not be undone by an answer from before.
TEST_F(Prefetching, AnAnswerFromBeforeARowWasInvalidatedIsForNobody) {
  Make(Bounded(kUnbounded));
  net().HoldReplies(0, true);
  Prefetch({1, 2});
  const Key key = 1;
  world().client(0).Invalidate(world().schema(0)->id(), Span<const Key>(&key, 1));
  net().HoldReplies(0, false);
  Settle();
  EXPECT_EQ(cache()->lines().size(), 0u);
  EXPECT_FALSE(OnWay());
  net().record = true;
  Train(0, {1});
  EXPECT_EQ(Fetched(), Vector<Key>({1}));
  Drained();
}

TEST_F(Prefetching, ATableThatGoesTakesItsBatchesAlong) {
  WorldConfig config = Bounded(0);
  config.tables = 2;
  Make(config);
  world().Prefetch(0, {{1}, {1}});
  net().HoldReplies(0, true);
  world().Prefetch(0, {{2}, {2}});
  world().client(0).RemoveTable(world().schema(1)->id());
  net().HoldReplies(0, false);
  Settle();
  auto step = world().NewStep({{1, 2}});
  ASSERT_TRUE(world().Read(0, step.get()).ok());
  Abandon();
}

// A server that is away: the prefetch says nothing, the lookup says it, and all goes on when it is back.
TEST_F(Prefetching, TroubleIsTheLookupsToTell) {
  WorldConfig config = Bounded(0);
  config.client.request_timeout = 1;
  config.client.deadline = 5;
  Make(config);
  net().faults.cut = 1;
  Prefetch({1, 2});
  auto step = world().NewStep({{1, 2}});
  const Status status = world().Read(0, step.get());
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.message();
  EXPECT_NE(status.message().find("a lookup"), std::string::npos) << status.message();
  net().faults = Faults::None();
  Train(0, {1, 2});
  EXPECT_EQ(cache()->Held(), 0u);
  Drained();
}

// So is a table that somebody has dropped: lookups of others do not hear of it.
TEST_F(Prefetching, ATableThatWasDroppedIsItsOwnLookupsToTell) {
  WorldConfig config = Bounded(3);
  config.tables = 2;
  Make(config);
  auto both = world().NewStep({{1}, {1}});
  ASSERT_TRUE(world().Read(0, both.get()).ok());
  world().service().DropTable(world().schema(0)->id());
  net().HoldRepliesFor(0, 0.2);
  world().Prefetch(0, {{2}, {}});
  Client& client = world().client(0);
  const Status other = client.Read(world().NewStep({{}, {1}})->MakeRead(), world().NewToken());
  EXPECT_TRUE(other.ok()) << other.message();
  const Status gone = client.Read(world().NewStep({{2}, {}})->MakeRead(), world().NewToken());
  EXPECT_EQ(gone.code(), Code::kFailedPrecondition);
  EXPECT_NE(gone.message().find("no table"), std::string::npos) << gone.message();
  Abandon();
}

TEST_F(Prefetching, APartitionThatComesToLifeAgainIsAskedAgain) {
  Make(Bounded(0));
  Train(0, {9});
  net().HoldReplies(0, true);
  Prefetch({1, 9});
  world().Restart(0, world().Snapshot(0), /*close=*/false);
  net().HoldReplies(0, false);
  Settle();
  Train(0, {1, 9});
  EXPECT_EQ(cache()->Held(), 0u);
  Drained();
}

// What the policy counts are uses: rows that come before they are used are no misses of the lookups between.
TEST_F(Prefetching, TheCacheKeepsWhatItKeepsWithoutIt) {
  uint64_t misses[2];
  for (int prefetch = 0; prefetch < 2; ++prefetch) {
    WorldConfig config = Bounded(kUnbounded, 1000);
    config.cache.policy = Policy::kLfu;
    Make(config);
    Random r(5);
    std::deque<std::vector<Key>> batches;
    for (int i = 0; i < 240; ++i) {
      std::set<Key> keys;
      while (keys.size() < 300) keys.insert(static_cast<Key>(std::exp(r.Unit() * std::log(20000.0))));
      batches.emplace_back(keys.begin(), keys.end());
      if (prefetch) Prefetch(batches.back());
      // From none to three batches are ahead of a lookup, as a busy machine makes it.
      while (batches.size() > static_cast<size_t>(i % 4)) {
        Train(0, batches.front());
        batches.pop_front();
      }
    }
    misses[prefetch] = cache()->counters().miss_pull;
    Drained();
  }
  EXPECT_GT(misses[0], 10000u);
  // A batch ahead is held: something else has left for it.
  EXPECT_LT(misses[1], misses[0] + misses[0] / 50);
}

// At s = 0 one worker's rows are the same to the last bit, whatever leaves the cache, and when.
TEST_F(Prefetching, OneWorkerIsBitForBitTheSame) {
  for (const char* optimizer : {"adagrad", "row_wise_adagrad", "adam", "ftrl", "sgd"}) {
    std::vector<std::vector<float>> rows[2];
    for (int prefetch = 0; prefetch < 2; ++prefetch) {
      WorldConfig config = Bounded(0, 7);
      config.optimizer = optimizer;
      config.dim = 3;
      config.partitions = 3;
      config.tolerance = 1e-4f;
      Make(config);
      Random keys(11);
      std::deque<std::vector<Key>> batches;
      for (int i = 0; i < 400; ++i) {
        batches.push_back({keys.Between(0, 12), keys.Between(0, 40), keys.Between(0, 40)});
        if (prefetch) Prefetch(batches.back());
        if (batches.size() < 3) continue;  // two batches ahead
        Train(0, batches.front());
        batches.pop_front();
      }
      for (Key key = 0; key <= 40; ++key) rows[prefetch].push_back(world().ServerRow(At(key)));
      if (prefetch) {
        EXPECT_GT(cache()->counters().prefetched, 100u);
      }
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
