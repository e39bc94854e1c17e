#include "het_tf/ext/serving/cc/follow/skew.h"

#include <gtest/gtest.h>

namespace het::follow {
namespace {

constexpr uint64_t kFirst = 7, kSecond = 8;  // incarnations

// Would catch an idle partition whose rows seem ever newer, although they are those of the cut.
TEST(Skew, OfAnIdlePartitionMovesOn) {
  Skew skew({{kFirst, 10}});
  skew.Begun(0, {kFirst, 10}, 100);
  skew.Brought(0, 150);
  EXPECT_EQ(skew.Bound(), 50u);
  skew.Begun(0, {kFirst, 10}, 900);
  EXPECT_EQ(skew.Bound(), 0u);
}

// Would catch a bound that was never measured.
TEST(Skew, IsUnknownBeforeAScanUpToTheCut) {
  Skew skew({{kFirst, 10}});
  EXPECT_EQ(skew.Bound(), std::nullopt);
  skew.Begun(0, {kFirst, 11}, 100);
  skew.Brought(0, 150);
  EXPECT_EQ(skew.Bound(), std::nullopt);
  skew.Flipped({{kFirst, 11}});
  EXPECT_EQ(skew.Bound(), 50u);
  skew.Forget();
  EXPECT_EQ(skew.Bound(), std::nullopt);
}

// Would catch scans of one version that the next one needs and does not find.
TEST(Skew, OfTheNextVersionCountsFromAScanBeforeItWasOffered) {
  Skew skew({{kFirst, 10}});
  for (uint64_t number = 10; number <= 20; ++number) skew.Begun(0, {kFirst, number}, number * 10);
  skew.Brought(0, 210);
  EXPECT_EQ(skew.Bound(), 110u);
  skew.Flipped({{kFirst, 18}});
  EXPECT_EQ(skew.Bound(), 30u);
}

// Would catch numbers of two incarnations that are compared.
TEST(Skew, OfACutOfAnotherIncarnationCountsFromTheVersionBefore) {
  Skew skew({{kFirst, 10}});
  skew.Begun(0, {kFirst, 10}, 100);
  skew.Begun(0, {kSecond, 3}, 200);
  skew.Brought(0, 250);
  EXPECT_EQ(skew.Bound(), 150u);
  skew.Flipped({{kFirst, 12}});
  EXPECT_EQ(skew.Bound(), 150u) << "the scans of before are forgotten";
  skew.Flipped({{kSecond, 3}});
  EXPECT_EQ(skew.Bound(), 50u);
}

// Would catch a list that grows for as long as no version comes, or a bound that is too small after it.
TEST(Skew, ForgetsTheOldestScans) {
  Skew skew({{kFirst, 10}});
  skew.Begun(0, {kFirst, 10}, 100);
  const uint64_t last = 20 + 2 * Skew::kMostScans;
  for (uint64_t number = 11; number <= last; ++number) skew.Begun(0, {kFirst, number}, number * 10);
  skew.Brought(0, last * 10);
  skew.Flipped({{kFirst, 100}});
  EXPECT_EQ(skew.Bound(), last * 10 - 100);
  skew.Flipped({{kFirst, last - 1}});
  EXPECT_EQ(skew.Bound(), 10u);
}

}  // namespace
}  // namespace het::follow
