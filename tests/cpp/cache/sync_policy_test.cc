#include "het_tf/core/cache/sync_policy.h"

#include <gtest/gtest.h>

#include <utility>

#include "het_tf/core/cache/cache_config.h"
#include "het_tf/core/cache/hot_bounds.h"
#include "het_tf/core/cache/table_cache.h"

namespace het {
namespace {

using Pull = SyncPolicy::Pull;

TEST(SyncPolicy, ANamedRowIsFetchedWhateverTheBound) {
  for (int64_t bound : {int64_t{0}, int64_t{5}, kUnbounded}) {
    for (bool subscribes : {false, true}) {
      EXPECT_EQ((SyncPolicy{bound, 5, subscribes}).OnRead(/*moved=*/true, /*trusted=*/false, false),
                Pull::kFetch);
    }
  }
}

TEST(SyncPolicy, ARowIsCheckedAtEveryReadWhereThereIsABound) {
  EXPECT_EQ((SyncPolicy{0, 5, false}).OnRead(false, false, false), Pull::kCheck);
  EXPECT_EQ((SyncPolicy{5, 5, false}).OnRead(false, false, false), Pull::kCheck);
  EXPECT_EQ((SyncPolicy{kUnbounded, 5, false}).OnRead(false, false, false), Pull::kNothing);
}

TEST(SyncPolicy, AFreshRowIsLeftAloneWhereTheBoundIsAboveZero) {
  EXPECT_EQ((SyncPolicy{5, 5, false}).OnRead(false, false, true), Pull::kNothing);
  EXPECT_EQ((SyncPolicy{5, 5, true}).OnRead(false, true, true), Pull::kNotified) << "asks what has moved";
  EXPECT_EQ((SyncPolicy{0, 5, false}).OnRead(false, false, true), Pull::kCheck);
  EXPECT_EQ((SyncPolicy{5, 5, false}).OnRead(true, false, true), Pull::kNothing) << "named since then";
  EXPECT_EQ((SyncPolicy{0, 5, false}).OnRead(true, false, true), Pull::kFetch);
}

TEST(SyncPolicy, ATrustedRowIsNotChecked) {
  EXPECT_EQ((SyncPolicy{5, 5, true}).OnRead(false, true, false), Pull::kNotified);
  EXPECT_EQ((SyncPolicy{5, 5, true}).OnRead(false, false, false), Pull::kCheck);
  EXPECT_EQ((SyncPolicy{5, 5, false}).OnRead(false, true, false), Pull::kCheck) << "a mark from before";
}

TEST(SyncPolicy, PushesGoOneStepEarlyFromABoundOfFourOn) {
  for (const auto& [bound, most] :
       {std::pair<int64_t, int64_t>{0, 0}, {1, 1}, {3, 3}, {4, 3}, {100, 99}, {kUnbounded, kUnbounded}}) {
    const SyncPolicy sync{5, bound, false};
    EXPECT_EQ(sync.most_unsent(), most) << bound;
    if (bound == kUnbounded) continue;
    EXPECT_FALSE(sync.PushNow(static_cast<uint32_t>(most)));
    EXPECT_TRUE(sync.PushNow(static_cast<uint32_t>(most) + 1));
    EXPECT_FALSE(sync.MustWait(static_cast<uint64_t>(bound)));
    EXPECT_TRUE(sync.MustWait(static_cast<uint64_t>(bound) + 1));
  }
  for (const auto& [bound, most] : {std::pair<int64_t, int64_t>{0, 0}, {1, 0}, {3, 2}, {4, 3}}) {
    EXPECT_EQ((SyncPolicy{5, bound, false, /*early=*/true}).most_unsent(), most) << bound;
  }
  EXPECT_FALSE((SyncPolicy{5, kUnbounded, false, true}).PushNow(UINT32_MAX));
  EXPECT_FALSE((SyncPolicy{5, kUnbounded, false}).PushNow(UINT32_MAX));
  EXPECT_FALSE((SyncPolicy{5, kUnbounded, false}).MustWait(UINT64_MAX));
}

TEST(SyncPolicy, OfACacheConfig) {
  CacheConfig config;
  config.checks = "told";
  EXPECT_TRUE(config.sync().subscribes);
  config.capacity = 0;
  EXPECT_FALSE(config.sync().subscribes) << "nothing is kept";
  config.capacity = 10;
  for (int64_t bound : {kUnbounded, int64_t{0}}) {
    config.pull_bound = bound;
    EXPECT_FALSE(config.sync().subscribes) << "nothing is checked, or everything is";
  }
}

TEST(HotBounds, FollowRateAndWorkers) {
  const struct {
    double rate;
    uint32_t workers;
    int64_t push;
    int64_t pull;
  } cases[] = {
      {0.05, 2, 10, 7},
      {0.05, 4, 3, 9},
      {0.05f, 8, 2, 9},
      {0.05, 32, 1, 13},
      {0.02, 2, 23, 19},
      {0.02, 8, 4, 20},
      {0.02, 32, 1, 33},
      {0.01, 8, 6, 40},
      {0.01, 32, 2, 47},
      {0.05, 1, 10, 7},
      {10, 8, 1, 0},
      {10, 1 << 20, 1, 0},
      {0, 8, 217950, 1181762},
      {-1, 8, 217950, 1181762},
      {1e-30, 8, 217950, 1181762},
  };
  for (const auto& c : cases) {
    const HotBounds bounds = HotBounds::Of(c.rate, c.workers);
    EXPECT_EQ(bounds.push, c.push) << c.rate << " " << c.workers;
    EXPECT_EQ(bounds.pull, c.pull) << c.rate << " " << c.workers;
  }
}

TEST(HotBounds, AreThoseOfTheRateWhereTheLossGoesWithIt) {
  for (const char* optimizer : {"row_wise_adagrad", "adagrad"}) {
    EXPECT_EQ(HotBounds::RateOf(optimizer, 0.7), 0.7) << optimizer;
  }
  for (const char* optimizer : {"sgd", "adam", "ftrl"}) {
    EXPECT_EQ(HotBounds::RateOf(optimizer, 0.7), HotBounds::RateOf(optimizer, 0.001)) << optimizer;
    const HotBounds bounds = HotBounds::Of(HotBounds::RateOf(optimizer, 0.001), 8);
    EXPECT_EQ(bounds.push, 1) << optimizer;
    EXPECT_EQ(bounds.pull, 4) << optimizer;
  }
}

TEST(HotBounds, AreTakenAtEachRateAndNeverAboveTheTables) {
  TableSpec spec;
  spec.name = "t";
  spec.optimizer.name = "row_wise_adagrad";
  spec.dim = 1;
  CacheConfig config;
  config.pull_bound = 30;
  config.push_bound = 30;
  config.hot = HotRows();
  TableCache fixed(TableSchema::Create(spec).value(), config, 1);
  fixed.FollowRate(0.05f);
  EXPECT_EQ(fixed.config().hot->pull_bound, 16);
  config.hot->workers = 8;
  TableCache cache(TableSchema::Create(spec).value(), config, 1);
  const auto bounds = [&] {
    return std::make_pair(cache.config().sync(true).pull_bound, cache.config().sync(true).push_bound);
  };
  cache.FollowRate(0.05f);
  EXPECT_EQ(bounds(), std::make_pair(int64_t{9}, int64_t{2}));
  cache.set_workers(32);
  EXPECT_EQ(bounds(), std::make_pair(int64_t{13}, int64_t{1}));
  cache.FollowRate(0.0005f);
  EXPECT_EQ(bounds(), std::make_pair(int64_t{30}, int64_t{30}));
  cache.FollowRate(0.02f);
  EXPECT_EQ(bounds(), std::make_pair(int64_t{30}, int64_t{1}));
}

}  // namespace
}  // namespace het
