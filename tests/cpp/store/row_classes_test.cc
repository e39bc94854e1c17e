// Which rows of a shard become hot, and which stop being so.
#include "het_tf/core/store/row_classes.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/cpp/testing/random.h"

namespace het::testing {
namespace {

constexpr ClientId kCounted{1, 1};
constexpr ClientId kOther{1, 2};

class RowClassesTest : public ::testing::Test {
 protected:
  uint32_t Row(Key key) {
    const uint32_t row = rows_.Find(key);
    return row != kNoRow ? row : rows_.Insert(key, rows_.Hash(key));
  }
  // Steps of a job in which each row of ticks is pushed so many ticks, once in so many steps.
  struct Rate {
    uint32_t ticks;
    uint32_t steps;
  };
  void Run(uint32_t steps, const std::map<Key, Rate>& rates) {
    for (uint32_t i = 0; i < steps; ++i) {
      classes_.See(kCounted, static_cast<uint8_t>(++step_), share_);
      for (const auto& [key, rate] : rates) {
        if (step_ % rate.steps == 0) classes_.Count(Row(key), rate.ticks);
      }
    }
  }
  bool Tight(Key key) { return classes_.tight(Row(key)); }
  bool Hot(Key key) { return classes_.hot(Row(key)); }

  RowStore rows_{1, 7};
  RowClasses classes_{&rows_};
  size_t share_ = 100;
  uint32_t step_ = 0;
};

TEST_F(RowClassesTest, ARateOfTicksMakesARowHot) {
  // One tick a step; four in 32, held back by workers; one in 20 steps; in 40; and one alone.
  Run(600, {{1, {1, 1}}, {2, {4, 32}}, {3, {1, 20}}, {4, {1, 40}}, {5, {4, 200}}, {6, {1, 100000}}});
  EXPECT_TRUE(Hot(1));
  EXPECT_TRUE(Hot(2));
  EXPECT_TRUE(Hot(3));
  EXPECT_FALSE(Tight(4));
  EXPECT_FALSE(Tight(5));
  EXPECT_TRUE(Tight(6)) << "never pushed, and so never judged";
  EXPECT_TRUE(classes_.tight(kNoRow));
  EXPECT_EQ(classes_.hot(), 3u);
}

TEST_F(RowClassesTest, ANewRowIsTightUntilItIsJudged) {
  Run(20, {});
  classes_.Count(Row(1), 4);
  Run(120, {});
  EXPECT_TRUE(Tight(1));
  EXPECT_FALSE(Hot(1));
  Run(20, {});
  classes_.Count(Row(1), 1);
  EXPECT_FALSE(Tight(1));
}

// What a worker has held back for long says little: another push has to follow.
TEST_F(RowClassesTest, NoPushAloneMakesARowHot) {
  classes_.See(kCounted, 0, share_);
  classes_.Count(Row(1), 1000);
  classes_.Count(Row(1), 1000);
  EXPECT_FALSE(Hot(1));
  classes_.Count(Row(1), 1);
  EXPECT_TRUE(Hot(1));
}

TEST_F(RowClassesTest, ARowThatCoolsDownIsRareAgain) {
  Run(200, {{1, {1, 1}}, {2, {1, 1}}});
  Run(600, {{1, {1, 48}}});
  EXPECT_TRUE(Hot(1)) << "more than half of the rate";
  EXPECT_FALSE(Hot(2)) << "not pushed at all";
  Run(900, {{1, {1, 100}}});
  EXPECT_FALSE(Tight(1));
  EXPECT_EQ(classes_.hot(), 0u);
}

TEST_F(RowClassesTest, NoMoreThanTheShareAreHotAndThoseAreTheHottest) {
  share_ = 10;
  std::map<Key, Rate> rates;
  for (Key key = 0; key < 40; ++key) rates[key] = {key < 8 ? 4u : 1u, 4};
  for (int i = 0; i < 20; ++i) {
    Run(128, rates);
    EXPECT_LE(classes_.hot(), share_);
  }
  size_t hottest = 0;
  for (Key key = 0; key < 8; ++key) hottest += Hot(key);
  EXPECT_EQ(hottest, 8u);
  share_ = 100;  // and when there is room again
  Run(128 * 40, rates);
  EXPECT_EQ(classes_.hot(), 40u);
}

TEST_F(RowClassesTest, RowsThatGoAreForgotten) {
  Run(200, {{1, {1, 1}}, {2, {1, 1}}});
  rows_.Erase(Row(1));
  EXPECT_TRUE(Tight(1));
  EXPECT_FALSE(Hot(1));
  Run(130, {{2, {1, 1}}});
  EXPECT_EQ(classes_.hot(), 1u);
  rows_.Clear();
  Run(130, {});
  EXPECT_EQ(classes_.hot(), 0u);
}

// Other workers' requests, and those that come twice, are no steps; and when the worker that was counted
// leaves, another takes its place.
TEST_F(RowClassesTest, StepsAreThoseOfOneClient) {
  const auto run = [&](ClientId client, uint32_t steps) {
    for (uint32_t i = 0; i < steps; ++i) {
      for (uint8_t again = 0; again < 2; ++again) classes_.See(client, static_cast<uint8_t>(i), share_);
      classes_.See(kOther, static_cast<uint8_t>(3 * i), share_);
      if (i % 40 == 0) classes_.Count(Row(1), 1);
    }
  };
  run(kCounted, 600);
  EXPECT_FALSE(Tight(1)) << "40 steps a tick";
  for (uint32_t i = 0; i < 300; ++i) classes_.See(kOther, 0, share_);
  for (uint32_t i = 0; i < 64; ++i) {
    classes_.See(kOther, static_cast<uint8_t>(i), share_);
    classes_.Count(Row(1), 1);
  }
  EXPECT_TRUE(Hot(1));
}

}  // namespace
}  // namespace het::testing
