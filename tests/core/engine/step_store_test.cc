// Steps between their lookup and their gradient: one list of the newest.
#include "het_tf/core/engine/step_store.h"

#include "tests/testing/status.h"

namespace het {
namespace {

uint64_t Begin(StepStore* store, StepStore::StepPtr plan) {
  const uint64_t number = store->Reserve();
  EXPECT_EQ(store->Remember(number, std::move(plan)), 0u);
  return number;
}

TEST(StepStore, NumbersMayBeUsedAgainAndAreNotGuessed) {
  StepStore store;
  const uint64_t number = Begin(&store, store.New());
  EXPECT_NE(store.Take(number).value(), nullptr);
  EXPECT_EQ(store.Take(number).value(), nullptr) << "the plan is built again";
  for (const uint64_t guess : {uint64_t{0}, number + 1}) {
    EXPECT_TRUE(Fails(store.Take(guess), Code::kFailedPrecondition, "was not a training lookup"));
  }
}

TEST(StepStore, OnlyTheNewestEightKeepPlanAndPins) {
  StepStore store;
  for (uint64_t n = 1; n <= StepStore::kKept; ++n) EXPECT_EQ(Begin(&store, store.New()), n);
  EXPECT_EQ(store.Remember(store.Reserve(), store.New()), 1u) << "the oldest one's pins";
  EXPECT_EQ(store.Take(1).value(), nullptr);
  EXPECT_NE(store.Take(2).value(), nullptr);
  // One place is free again.
  EXPECT_EQ(store.Remember(store.Reserve(), nullptr), 0u);
  EXPECT_EQ(store.Remember(store.Reserve(), nullptr), 3u);
}

TEST(StepStore, UndifferentiatedLookupIsDropped) {
  StepStore store;
  const uint64_t never = Begin(&store, store.New());
  for (uint64_t n = 0; n < StepStore::kBehind; ++n) ASSERT_TRUE(store.Take(Begin(&store, store.New())).ok());
  EXPECT_EQ(store.Remember(store.Reserve(), nullptr), never);
}

TEST(StepStore, LookupsAreKeptInOrderOfTheirNumbers) {
  StepStore store;
  const uint64_t late = store.Reserve();
  for (size_t n = 0; n < StepStore::kKept; ++n) Begin(&store, store.New());
  EXPECT_EQ(store.Remember(late, store.New()), late) << "it is the oldest";
  EXPECT_EQ(store.Take(late).value(), nullptr);
}

TEST(StepStore, PlansAreUsedAgain) {
  StepStore store;
  StepStore::StepPtr plan = store.New();
  const Step* const step = plan.get();
  plan.reset();
  EXPECT_EQ(store.New().get(), step);
  const uint64_t number = Begin(&store, store.New());
  store.Take(number).value().reset();
  EXPECT_EQ(store.New().get(), step);
}

}  // namespace
}  // namespace het
