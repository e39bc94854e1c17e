// Cached rows that are checked when their batch is read ahead (CachedRead::check_ahead): what is asked, what
// lookups then do without, and when they check all the same. What bounds hold is for Schedules.CheckAhead.
#include <gtest/gtest.h>

#include "tests/cpp/testing/world/world_test.h"

namespace het::testing {
namespace {

class CheckingAhead : public WorldTest {
 protected:
  void MakeAhead(int64_t bound, uint32_t check_ahead = 1, size_t capacity = 1000) {
    WorldConfig config = Bounded(bound, capacity);
    config.workers = 2;
    config.check_ahead = check_ahead;
    Make(config);
  }
  void Prefetch(const std::vector<Key>& keys, size_t w = 0) { world().Prefetch(w, {keys}); }
  void Settle(size_t w = 0) { world().client(w).Progress(0); }
  // What was asked since recording began, or since the last call.
  struct Asked {
    size_t requests = 0;
    Vector<Key> checks;
    Vector<Key> fetches;
  };
  Asked WhatWasAsked(size_t w = 0) {
    Asked asked;
    for (const Request& request : Sent(w)) {
      ++asked.requests;
      for (const TableRequest& table : request.tables) {
        asked.checks.insert(asked.checks.end(), table.check_keys.begin(), table.check_keys.end());
        asked.fetches.insert(asked.fetches.end(), table.fetch_keys.begin(), table.fetch_keys.end());
      }
    }
    return asked;
  }
};

TEST_F(CheckingAhead, ALookupOfACheckedBatchAsksNothing) {
  for (const Checks checks : {Checks::kAsked, Checks::kTold}) {
    WorldConfig config = Bounded(10);
    config.check_ahead = 1;
    config.cache.checks = checks;
    Make(config);
    Train(0, {1, 2});
    net().record = true;
    Prefetch({1, 2, 3});
    Settle();
    const Asked asked = WhatWasAsked();
    EXPECT_EQ(asked.requests, 1u) << ChecksName(checks);
    EXPECT_EQ(asked.checks.size(), checks == Checks::kAsked ? 2u : 0u);
    EXPECT_EQ(asked.fetches, Vector<Key>({3}));
    Train(0, {1, 2, 3});
    const Asked later = WhatWasAsked();
    EXPECT_EQ(later.requests, checks == Checks::kAsked ? 0u : 1u) << "told: what has moved";
    EXPECT_TRUE(later.checks.empty() && later.fetches.empty());
    EXPECT_EQ(cache()->Held(), 0u);
    EXPECT_EQ(cache()->counters().hits, 3u);
    Drained();
  }
}

TEST_F(CheckingAhead, ARowPastTheBoundIsReplacedAhead) {
  for (const Checks checks : {Checks::kAsked, Checks::kTold}) {
    WorldConfig config = Bounded(4);
    config.workers = 2;
    config.check_ahead = 1;
    config.cache.checks = checks;
    Make(config);
    Train(0, {1, 2});
    for (int i = 0; i < 8; ++i) Train(1, {1});
    Train(0, {2});  // told: the answer names the row
    Settle();
    const float before = cache()->lines().data(cache()->lines().Find(1))[1];
    Prefetch({1});
    Settle();
    EXPECT_LT(cache()->lines().data(cache()->lines().Find(1))[1], before) << ChecksName(checks);
    net().record = true;
    Train(0, {1});
    const Asked asked = WhatWasAsked();
    EXPECT_TRUE(asked.checks.empty() && asked.fetches.empty()) << ChecksName(checks);
    EXPECT_EQ(asked.requests, checks == Checks::kAsked ? 0u : 1u) << "told: what has moved";
  }
}

// It was within the bound when the batch was read ahead, as far as the partition had said.
TEST_F(CheckingAhead, ARowThatIsNamedAfterwardsIsReadAllTheSame) {
  WorldConfig config = Bounded(4);
  config.workers = 2;
  config.check_ahead = 1;
  config.cache.checks = Checks::kTold;
  Make(config);
  Train(0, {1, 2});
  Train(0, {2});
  Settle();
  Prefetch({1});
  for (int i = 0; i < 8; ++i) Train(1, {1});
  Train(0, {2});
  Settle();
  const uint32_t line = cache()->lines().Find(1);
  ASSERT_TRUE(cache()->moved(line));
  const float before = cache()->lines().data(line)[1];
  net().record = true;
  EXPECT_EQ(Read(0, {1})->Value(At(1).first, 1)[1], before);
  EXPECT_TRUE(WhatWasAsked().fetches.empty());
  Prefetch({1});
  EXPECT_EQ(WhatWasAsked().fetches, Vector<Key>({1})) << "the next batch has it anew";
}

TEST_F(CheckingAhead, AtBoundZeroTheLookupChecks) {
  MakeAhead(0);
  Train(0, {1});
  Prefetch({1});
  Settle();
  Train(1, {1});
  net().record = true;
  EXPECT_EQ(Read(0, {1})->Value(At(1).first, 1)[1], kInitial - 1);
  EXPECT_EQ(WhatWasAsked().checks, Vector<Key>({1}));
}

TEST_F(CheckingAhead, ALookupWaitsForItsChecks) {
  MakeAhead(10);
  Train(0, {1, 2});
  net().HoldRepliesFor(0, 0.3);
  net().record = true;
  Prefetch({1, 2});
  Train(0, {1, 2});
  const Asked asked = WhatWasAsked();
  EXPECT_EQ(asked.requests, 1u);
  EXPECT_EQ(asked.checks, Vector<Key>({1, 2}));
  Drained();
}

TEST_F(CheckingAhead, TooManyOthersInBetweenAndTheLookupChecks) {
  MakeAhead(10, 2);
  Train(0, {1});
  for (int others = 2; others <= 3; ++others) {
    Prefetch({1});
    for (int i = 0; i < others; ++i) Train(0, {7});
    net().record = true;
    Read(0, {1}, /*training=*/false);
    EXPECT_EQ(WhatWasAsked().checks.size(), 1u) << "always, and it is none of the others";
    Train(0, {1});
    EXPECT_EQ(WhatWasAsked().checks.size(), others == 2 ? 0u : 1u) << others;
    net().record = false;
  }
  Drained();
}

// A row is fresh, not a batch: another lookup that reads it does without a check, too.
TEST_F(CheckingAhead, AnyLookupOfTheRowDoesWithoutTheCheck) {
  MakeAhead(10, 2);
  Train(0, {1, 2});
  Prefetch({1});
  Settle();
  net().record = true;
  Train(0, {1, 2});
  EXPECT_EQ(WhatWasAsked().checks, Vector<Key>({2}));
}

TEST_F(CheckingAhead, WhatFindsNoRoomIsFetchedByItsLookup) {
  MakeAhead(10, 1, 3);
  Train(0, {1, 2, 3});
  net().record = true;
  Prefetch({1, 2, 3, 4, 5, 6, 7, 8});
  Settle();
  EXPECT_EQ(WhatWasAsked().fetches, Vector<Key>({4, 5, 6}));
  Train(0, {1, 2, 3, 4, 5, 6, 7, 8});
  const Asked asked = WhatWasAsked();
  EXPECT_EQ(asked.fetches, Vector<Key>({7, 8}));
  EXPECT_TRUE(asked.checks.empty());
  Drained();
}

TEST_F(CheckingAhead, RowsOfAPartitionThatCameToLifeAgainAreFetched) {
  MakeAhead(10);
  Train(0, {1, 2});
  Prefetch({1, 2});
  Settle();
  world().Restart(0, world().Snapshot(0));
  Train(0, {9});  // hears of it
  net().record = true;
  Train(0, {1, 2});
  EXPECT_EQ(WhatWasAsked().fetches, Vector<Key>({1, 2}));
  Drained();
}

TEST_F(CheckingAhead, WhatIsInvalidIsFetchedAhead) {
  MakeAhead(10);
  Train(0, {1, 2});
  world().Restart(0, world().Snapshot(0));
  Train(0, {9});  // hears of it
  net().record = true;
  Prefetch({1, 2});
  Settle();
  EXPECT_EQ(WhatWasAsked().fetches, Vector<Key>({1, 2}));
  Train(0, {1, 2});
  EXPECT_EQ(WhatWasAsked().requests, 0u);
  EXPECT_EQ(cache()->Held(), 0u);
  Drained();
}

TEST_F(CheckingAhead, ARowOnItsWayForTheBatchBeforeIsCheckedWhenItIsHere) {
  MakeAhead(10);
  Read(0, {777}, /*training=*/false);  // a first request is answered with the table's epoch alone
  net().HoldReplies(0, true);
  Prefetch({1});
  Prefetch({1, 2});
  net().HoldReplies(0, false);
  net().record = true;
  for (int i = 0; i < 5; ++i) Settle();
  EXPECT_EQ(WhatWasAsked().checks, Vector<Key>({1}));
  Train(0, {1});
  Train(0, {1, 2});
  EXPECT_EQ(WhatWasAsked().requests, 0u);
  Drained();
}

}  // namespace
}  // namespace het::testing
