#include "het_tf/core/cache/sync_policy.h"

#include <gtest/gtest.h>

#include "het_tf/core/cache/cache_config.h"

namespace het {
namespace {

using Pull = SyncPolicy::Pull;

TEST(SyncPolicy, AnInvalidRowIsFetchedWhateverTheBound) {
  for (int64_t bound : {int64_t{0}, int64_t{5}, kUnbounded}) {
    for (bool subscribes : {false, true}) {
      EXPECT_EQ((SyncPolicy{bound, 5, subscribes}).OnRead(/*old=*/true, /*trusted=*/false, false),
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
  EXPECT_EQ((SyncPolicy{5, 5, true}).OnRead(false, true, true), Pull::kNothing);
  EXPECT_EQ((SyncPolicy{0, 5, false}).OnRead(false, false, true), Pull::kCheck);
  EXPECT_EQ((SyncPolicy{5, 5, false}).OnRead(true, false, true), Pull::kFetch);
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

}  // namespace
}  // namespace het
