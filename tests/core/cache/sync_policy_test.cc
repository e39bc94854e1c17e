#include "het_tf/core/cache/sync_policy.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "het_tf/core/cache/cache_config.h"
#include "het_tf/core/cache/table_cache.h"
#include "tests/testing/table_specs.h"

namespace het {
namespace {

using Pull = SyncPolicy::Pull;

TEST(SyncPolicy, ANamedRowIsFetchedWhateverTheBound) {
  for (int64_t bound : {int64_t{0}, int64_t{5}, kUnbounded}) {
    for (bool subscribes : {false, true}) {
      EXPECT_EQ((SyncPolicy{bound, 5, subscribes}).OnRead(/*moved=*/true, /*trusted=*/false), Pull::kFetch);
    }
  }
}

TEST(SyncPolicy, ARowIsCheckedAtEveryReadWhereThereIsABound) {
  EXPECT_EQ((SyncPolicy{0, 5, false}).OnRead(false, false), Pull::kCheck);
  EXPECT_EQ((SyncPolicy{5, 5, false}).OnRead(false, false), Pull::kCheck);
  EXPECT_EQ((SyncPolicy{kUnbounded, 5, false}).OnRead(false, false), Pull::kNothing);
}

TEST(SyncPolicy, OnlyExactLookupsWaitForTheStepBefore) {
  EXPECT_FALSE((SyncPolicy{0, 0, false}).MayBeginEarly());
  for (const Bound& pull : {Bound(1), Bound(30, 10), Bound(kUnbounded)}) {
    EXPECT_TRUE((SyncPolicy{pull, 0, false}).MayBeginEarly());
  }
}

TEST(SyncPolicy, ATrustedRowIsNotChecked) {
  EXPECT_EQ((SyncPolicy{5, 5, true}).OnRead(false, true), Pull::kNotified);
  EXPECT_EQ((SyncPolicy{5, 5, true}).OnRead(false, false), Pull::kCheck);
  EXPECT_EQ((SyncPolicy{5, 5, false}).OnRead(false, true), Pull::kCheck) << "a mark from before";
}

TEST(SyncPolicy, PushesGoOneStepEarlyFromABoundOfFourOn) {
  for (const auto& [bound, most] :
       {std::pair<int64_t, int64_t>{0, 0}, {1, 1}, {3, 3}, {4, 3}, {100, 99}, {kUnbounded, kUnbounded}}) {
    const SyncPolicy sync{5, bound, false};
    EXPECT_EQ(sync.unsent(), most) << bound;
    if (bound == kUnbounded) continue;
    EXPECT_FALSE(sync.PushNow(static_cast<uint32_t>(most), 0));
    EXPECT_TRUE(sync.PushNow(static_cast<uint32_t>(most) + 1, 0));
    EXPECT_FALSE(sync.MustWait(static_cast<uint64_t>(bound), 0));
    EXPECT_TRUE(sync.MustWait(static_cast<uint64_t>(bound) + 1, 0));
  }
  EXPECT_FALSE((SyncPolicy{5, kUnbounded, false}).PushNow(UINT32_MAX, 0));
  EXPECT_FALSE((SyncPolicy{5, kUnbounded, false}).MustWait(UINT64_MAX, 0));
}

// Would find a worker that holds back a young row, or waits for a push that it has just sent.
TEST(SyncPolicy, ByAgeAYoungRowIsWrittenThroughAndNoStepWaitsForItsOwnPush) {
  const SyncPolicy sync{5, Bound(3, 10), false};
  for (const auto& [clock, most] : {std::pair<Clock, uint32_t>{1, 0}, {9, 0}, {10, 1}, {30, 3}, {500, 3}}) {
    EXPECT_FALSE(sync.PushNow(most, clock)) << clock;
    EXPECT_TRUE(sync.PushNow(most + 1, clock)) << clock;
    EXPECT_FALSE(sync.MustWait(most + 1, clock)) << clock;
    EXPECT_TRUE(sync.MustWait(most + 2, clock)) << clock;
  }
}

TEST(SyncPolicy, OfACacheConfig) {
  CacheConfig config;
  config.checks = Checks::kNotified;
  EXPECT_TRUE(config.sync().subscribes);
  config.capacity = 0;
  EXPECT_FALSE(config.sync().subscribes) << "nothing is kept";
  config.capacity = 10;
  for (int64_t bound : {kUnbounded, int64_t{0}}) {
    config.pull_bound = bound;
    EXPECT_FALSE(config.sync().subscribes) << "nothing is checked, or everything is";
  }
}

TEST(Bound, FollowsTheAgeUpToItsMost) {
  const Bound bound(30, 20);
  for (const auto& [clock, most] :
       {std::pair<Clock, int64_t>{0, 0}, {19, 0}, {20, 1}, {599, 29}, {600, 30}, {9999, 30}}) {
    EXPECT_EQ(bound.Of(clock), most) << clock;
  }
  const Bound later(30, 10, 3, 200);
  for (const auto& [clock, most] :
       {std::pair<Clock, int64_t>{9, 0}, {10, 1}, {30, 3}, {199, 3}, {200, 20}, {300, 30}, {9999, 30}}) {
    EXPECT_EQ(later.Of(clock), most) << clock;
  }
  EXPECT_EQ(Bound(7).Of(0), 7);
  EXPECT_EQ(Bound(7, 1).Of(INT64_MIN), 0) << "any bytes may be a clock";
}

// Would find a row that was removed and made anew, which is young whatever its clock is.
TEST(Bound, ARowIsYoungWhenItIsBornAgain) {
  EXPECT_EQ(Bound(30, 20).Of(7 * kBirthGap + 19), 0);
  EXPECT_EQ(Bound(30, 20).Of(7 * kBirthGap + 40), 2);
}

constexpr double kAdagrad = 1;  // StalenessBounds::Of's decay_steps
constexpr double kAdam = std::numeric_limits<double>::infinity();

TEST(StalenessBounds, FallWithTheNumberOfWorkers) {
  const StalenessBounds two = StalenessBounds::Of(kAdagrad, 30, 2);
  EXPECT_EQ(two.pull, Bound(30, 10));
  EXPECT_EQ(two.push, Bound(38, 8));
  const StalenessBounds eight = StalenessBounds::Of(kAdagrad, 30, 8);
  EXPECT_EQ(eight.pull, Bound(30, 10));
  EXPECT_EQ(eight.push, Bound(5, 54));
  EXPECT_EQ(StalenessBounds::Of(kAdagrad, 30, 32).push.most, 1);
  EXPECT_EQ(StalenessBounds::Of(kAdagrad, 30, 1000).push.most, 0);
}

// Would find a row that is stale while its steps are still large.
TEST(StalenessBounds, BeginLaterWhereStepsShrinkLater) {
  const StalenessBounds bounds = StalenessBounds::Of(20, 30, 8);
  EXPECT_EQ(bounds.pull, Bound(30, 10, 3, 480));
  EXPECT_EQ(bounds.push, Bound(5, 54, 0, 960));
}

TEST(StalenessBounds, OfStepsThatStayNothingIsHeldBack) {
  const StalenessBounds bounds = StalenessBounds::Of(kAdam, 30, 8);
  for (const Clock clock : {Clock{10}, Clock{100}, kBirthGap - 1}) {
    EXPECT_EQ(bounds.pull.Of(clock), std::min<Clock>(3, clock / 10));
    EXPECT_FALSE((SyncPolicy{bounds.pull, bounds.push}).PushNow(0, clock));
    EXPECT_TRUE((SyncPolicy{bounds.pull, bounds.push}).PushNow(1, clock));
  }
  EXPECT_EQ(StalenessBounds::Of(kAdam, 2, 8).pull.Of(100), 2);
}

// One worker misses nothing; would find one that pushes for others that there are not.
TEST(StalenessBounds, OfOneWorkerAreThoseOfHet) {
  EXPECT_EQ(StalenessBounds::Of(kAdagrad, 30, 1).pull, Bound(30));
  EXPECT_EQ(StalenessBounds::Of(kAdam, 30, 1).push, Bound(30));
}

TEST(StalenessBounds, ZeroIsExactAndUnboundedIsNotChecked) {
  for (int64_t s : {int64_t{0}, kUnbounded}) {
    EXPECT_EQ(StalenessBounds::Of(kAdagrad, s, 8).pull, Bound(s));
    EXPECT_EQ(StalenessBounds::Of(kAdam, s, 8).push, Bound(s));
  }
}

TEST(StalenessBounds, OfACacheFollowItsWorkers) {
  CacheConfig config;
  config.staleness = 30;
  for (const auto& [workers, most] : {std::pair(8, 5), std::pair(32, 1)}) {
    config.workers = static_cast<uint32_t>(workers);
    const TableCache cache(testing::NewSchema("t", 1, "adagrad"), config, 1);
    EXPECT_EQ(cache.policy().config().push_bound.most, most);
    EXPECT_EQ(cache.policy().config().pull_bound, Bound(30, 10));
  }
}

}  // namespace
}  // namespace het
