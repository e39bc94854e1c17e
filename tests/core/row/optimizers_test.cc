// Properties of single optimizers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "het_tf/core/row/optimizer.h"
#include "tests/testing/optimizer_of.h"

namespace het::optimizers_test {
namespace {

using Row = std::vector<float>;
using testing::MakeOptimizer;

TEST(Momentum, DecaysByAnyNumberOfTicks) {
  const auto optimizer = MakeOptimizer({"momentum", {{"momentum", 0.999}}}, 1);
  const Row nothing(2, 0.0f);
  for (uint32_t p : {0u, 1u, 2u, 3u, 31u, 1000u, 65537u, 4294967295u}) {
    Row row = {0, 1};
    optimizer->MergeInto(nothing.data(), p, row.data());
    const double expected = std::pow(static_cast<double>(0.999f), p);
    EXPECT_NEAR(row[1], expected, 1e-7 * expected) << p;
  }
}

// Near the ends of its table (18 014 corrections at 0.999, the most at 0.99999), and far beyond.
TEST(Adam, BiasCorrectionAtAnyStep) {
  for (double beta_2 : {0.0, 0.99, 0.999, 0.99999}) {
    const auto optimizer = MakeOptimizer({"adam", {{"beta_2", beta_2}}}, 1);
    for (int t :
         {1, 2, 100, 1799, 5000, 18011, 18012, 18013, 18014, 65534, 65535, 65536, 65537, 2000000, 16777216}) {
      Row row = {0, 0, 0, static_cast<float>(t - 1)};
      const float g = 1.0f;
      optimizer->Apply(1.0f, &g, 0, row.data(), nullptr);
      const double correction = std::sqrt(1 - std::pow(beta_2, t)) / (1 - std::pow(0.9, t));
      const double expected = -correction * 0.1 / (std::sqrt(1 - beta_2) + 1e-7);
      EXPECT_NEAR(row[0], expected, 1e-6 * std::fabs(expected)) << "beta_2 " << beta_2 << " step " << t;
    }
  }
}

TEST(Ftrl, TheValueIsAFunctionOfTheSlots) {
  const auto optimizer = MakeOptimizer({"ftrl", {{"l1", 0.25}, {"l2", 0.5}, {"beta", 1}}}, 3);
  Row row = {9, 9, 9, /*z*/ 0.25f, 1.25f, -2.25f, /*n*/ 4, 4, 9, /*learning_rate*/ 0.5f};
  const Row identity(10, 0.0f);
  optimizer->MergeInto(identity.data(), 0, row.data());
  EXPECT_EQ(row[0], 0.0f);  // |z| <= l1
  EXPECT_FLOAT_EQ(row[1], -1.0f / ((1 + 2) / 0.5f + 1));
  EXPECT_FLOAT_EQ(row[2], 2.0f / ((1 + 3) / 0.5f + 1));
}

TEST(Ftrl, ZeroLearningRateLeavesRowAndUpdate) {
  const auto optimizer = MakeOptimizer({"ftrl", {}}, 2);
  const Row g = {1, -1};
  Row row = {0.5f, -0.5f, 0, 0, 0.1f, 0.1f, 0}, update(7, 0.0f);
  const Row fresh = row;
  optimizer->Apply(0.0f, g.data(), 0, row.data(), update.data());
  EXPECT_EQ(row, fresh);
  EXPECT_THAT(update, ::testing::Each(0.0f));
  optimizer->Apply(0.1f, g.data(), 0, row.data(), update.data());
  const Row written = row, pending = update;
  optimizer->Apply(0.0f, g.data(), 0, row.data(), update.data());
  EXPECT_EQ(row, written);
  EXPECT_EQ(update, pending);
}

TEST(Ftrl, ElementWithoutGradientKeepsItsValue) {
  const auto optimizer = MakeOptimizer({"ftrl", {{"initial_accumulator", 0}}}, 2);
  Row row = {0.5f, 0.25f, 0, 0, 0, 0, 0};
  const Row g = {1, 0};
  optimizer->Apply(0.1f, g.data(), 0, row.data(), nullptr);
  EXPECT_NE(row[0], 0.5f);
  EXPECT_EQ(row[1], 0.25f);
}

TEST(Ftrl, TheLastLearningRateTravels) {
  const auto optimizer = MakeOptimizer({"ftrl", {}}, 1);
  Row u1 = {0, 1, 1, 0.1f}, u2 = {0, 1, 1, 0.2f}, none = {0, 0, 0, 0};
  optimizer->MergeInto(u2.data(), 1, u1.data());
  EXPECT_EQ(u1[3], 0.2f);
  optimizer->MergeInto(none.data(), 0, u1.data());
  EXPECT_EQ(u1[3], 0.2f);
}

}  // namespace
}  // namespace het::optimizers_test
