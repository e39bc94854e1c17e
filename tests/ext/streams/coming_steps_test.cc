// Batches of future lookups: which one a lookup matches, which one may begin, and which ones are dropped.
#include "het_tf/ext/streams/cc/coming_steps.h"

#include <gtest/gtest.h>

#include <vector>

namespace het {
namespace {

class ComingStepsTest : public ::testing::Test {
 protected:
  using Ids = std::vector<int64_t>;

  void Add(const Ids& ids, uint64_t lane = 1, size_t window = 100) {
    auto step = coming_.New();
    const FeatureIds feature = Feature(ids);
    step->SetIds(Span<const FeatureIds>(&feature, 1));
    step->may_begin = true;
    const uint64_t table = 1;
    step->plan.Build({&feature, 1}, {&table, 1}, PartitionId(), nullptr);
    coming_.Add(lane, window, std::move(step));
  }
  // Whether the batch is planned, with a plan of these ids.
  bool Match(const Ids& ids, uint64_t lane = 1) {
    const FeatureIds feature = Feature(ids);
    Step step;
    found_ = coming_.Match(lane, Span<const FeatureIds>(&feature, 1), &step);
    if (found_.planned) {
      EXPECT_EQ(step.plan.entries(), ids.size());
      EXPECT_EQ(step.plan.keys(step.plan.groups()[0])[0], ids[0]);
    }
    return found_.planned;
  }
  // The first id of the batch that begins; -1: none.
  int64_t Begin() {
    int64_t id = -1;
    coming_.BeginNext([&](PlannedStep* step) {
      id = step->ids[0];
      EXPECT_NE(step->number, 0u);
    });
    return id;
  }

  StepStore steps_;
  ComingSteps coming_{&steps_};
  ComingSteps::Found found_;

 private:
  static FeatureIds Feature(const Ids& ids) { return {0, ids, std::nullopt}; }
};

TEST_F(ComingStepsTest, LookupMatchesTheOldestBatchWithItsIds) {
  Add({1, 2});
  Add({3});
  Add({1, 2});
  EXPECT_FALSE(Match({1})) << "a part of a batch";
  EXPECT_FALSE(Match({2, 1})) << "another order";
  EXPECT_FALSE(Match({1, 2}, /*lane=*/2)) << "another layer";
  EXPECT_TRUE(Match({1, 2}));
  EXPECT_TRUE(Match({3}));
  EXPECT_TRUE(Match({1, 2}));
  EXPECT_FALSE(Match({1, 2})) << "each is looked up once";
}

TEST_F(ComingStepsTest, OnlyTheNextBatchOfALaneBegins) {
  Add({1});
  Add({2});
  Add({10}, /*lane=*/2);
  EXPECT_TRUE(coming_.any_to_do());
  EXPECT_EQ(Begin(), 1);
  EXPECT_EQ(Begin(), 10);
  EXPECT_EQ(Begin(), -1);
  EXPECT_FALSE(coming_.any_to_do());
  ASSERT_TRUE(Match({1}));
  EXPECT_NE(found_.number, 0u) << "the lookup goes on with the number of its read";
  EXPECT_EQ(Begin(), 2);
}

TEST_F(ComingStepsTest, BlockedBatchBlocksLaterOnes) {
  auto step = coming_.New();
  step->of_feature = {0};
  coming_.Add(1, 100, std::move(step));
  Add({2});
  EXPECT_EQ(Begin(), -1);
}

// An abandoned iterator: the new one's batches begin, and the old ones are dropped at last.
TEST_F(ComingStepsTest, PassedOverBatchesAreDropped) {
  Add({1});
  Add({2});
  EXPECT_EQ(Begin(), 1);
  constexpr int64_t kMore = ComingSteps::kPassedOver + 1;
  for (int64_t id = 0; id < kMore; ++id) Add({100 + id});
  ASSERT_TRUE(Match({100}));
  EXPECT_EQ(Begin(), 101);
  for (int64_t id = 1; id < kMore; ++id) {
    EXPECT_TRUE(coming_.TakeLeft().empty());
    ASSERT_TRUE(Match({100 + id}));
  }
  EXPECT_EQ(coming_.TakeLeft().size(), 1u) << "of the one that had begun";
  EXPECT_FALSE(Match({1}));
}

TEST_F(ComingStepsTest, LaneIsLimitedToItsWindowAndSlack) {
  for (int64_t id = 0; id < 20; ++id) Add({id}, /*lane=*/1, /*window=*/4);
  EXPECT_FALSE(Match({static_cast<int64_t>(20 - 4 - ComingSteps::kBeside - 1)}));
  EXPECT_TRUE(Match({static_cast<int64_t>(20 - 4 - ComingSteps::kBeside)}));
}

TEST_F(ComingStepsTest, LookupsOfOtherIdsAreReportedOnce) {
  Add({1});
  int found = 0;
  for (uint32_t i = 0; i < 3 * ComingSteps::kTellAfter; ++i) {
    EXPECT_FALSE(Match({7}));
    found += found_.tell;
  }
  EXPECT_EQ(found, 1);
  for (uint32_t i = 0; i < 3 * ComingSteps::kTellAfter; ++i) {
    EXPECT_FALSE(Match({7}, /*lane=*/2));
    EXPECT_FALSE(found_.tell) << "a layer without plans";
  }
}

TEST_F(ComingStepsTest, ClearForgetsAllAndSaysWhatHadBegun) {
  Add({1});
  Begin();
  coming_.Clear();
  EXPECT_FALSE(Match({1}));
  EXPECT_EQ(coming_.TakeLeft().size(), 1u);
}

}  // namespace
}  // namespace het
