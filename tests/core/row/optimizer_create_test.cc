// Refusals of optimizers, the layout of their rows, and properties of single ones.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "het_tf/core/row/optimizer.h"
#include "tests/testing/optimizer_of.h"

namespace het::optimizer_create_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Row = std::vector<float>;
using testing::MakeOptimizer;

std::string Refusal(const OptimizerSpec& spec, size_t dim = 4) {
  auto made = Optimizer::Create(spec, dim);
  EXPECT_FALSE(made.ok()) << spec.name;
  EXPECT_EQ(made.status().code(), Code::kInvalidArgument);
  return made.status().message();
}

TEST(OptimizerCreate, UnknownNameListsTheKnown) {
  EXPECT_THAT(Refusal({"adamw", {}}),
              AllOf(HasSubstr("'adamw'"),
                    HasSubstr("sgd, momentum, rmsprop, adam, adagrad, row_wise_adagrad, ftrl")));
}

TEST(OptimizerCreate, UnknownParameterListsTheKnown) {
  EXPECT_THAT(Refusal({"adam", {{"rho", 0.5}}}),
              AllOf(HasSubstr("'rho'"), HasSubstr("0.5"), HasSubstr("beta_1, beta_2, epsilon")));
  EXPECT_THAT(Refusal({"sgd", {{"momentum", 0.9}}}), AllOf(HasSubstr("'momentum'"), HasSubstr("takes none")));
}

TEST(OptimizerCreate, OutOfRangeErrorNamesValueAndRange) {
  const std::map<std::string, std::vector<std::string>> kParams = {
      {"momentum", {"momentum", "nesterov"}},
      {"rmsprop", {"rho", "epsilon"}},
      {"adam", {"beta_2", "epsilon"}},
      {"adagrad", {"epsilon", "initial_accumulator", "decay_steps"}},
      {"row_wise_adagrad", {"decay_steps", "epsilon", "initial_accumulator"}},
      {"ftrl", {"l1", "l2", "beta", "l2_shrinkage", "initial_accumulator"}}};
  EXPECT_THAT(Refusal({"adam", {{"beta_1", 1.0}}}),
              AllOf(HasSubstr("'beta_1'"), HasSubstr("is 1;"), HasSubstr("from 0 to 0.9999999")));
  EXPECT_THAT(Refusal({"momentum", {{"nesterov", 0.5}}}),
              AllOf(HasSubstr("'nesterov'"), HasSubstr("0 or 1")));
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (double bad : {-1.0, nan, inf, -inf}) {
    for (const auto& [name, params] : kParams) {
      for (const std::string& param : params) {
        EXPECT_THAT(Refusal({name, {{param, bad}}}), HasSubstr("'" + param + "'"));
      }
    }
  }
  EXPECT_THAT(Refusal({"adagrad", {{"epsilon", 0.0}}}), HasSubstr("'epsilon' is 0;"));  // else 0 / 0
}

TEST(OptimizerCreate, DimZero) { EXPECT_THAT(Refusal({"adam", {}}, 0), HasSubstr("dim is 0")); }

TEST(OptimizerCreate, EveryNameHasDefaults) {
  for (const std::string& name : Optimizer::Names()) EXPECT_NE(MakeOptimizer({name, {}}, 3), nullptr) << name;
}

struct Shape {
  std::string name;
  size_t row_floats, wire_begin;  // at dim 5
};

TEST(OptimizerLayout, RowsUpdatesAndInitialSlots) {
  for (const Shape& shape : std::vector<Shape>{{"sgd", 5, 0},
                                               {"momentum", 10, 0},
                                               {"rmsprop", 10, 0},
                                               {"adam", 16, 0},
                                               {"adagrad", 10, 0},
                                               {"row_wise_adagrad", 6, 0},
                                               {"ftrl", 16, 5}}) {
    const auto optimizer = MakeOptimizer({shape.name, {}}, 5);
    EXPECT_EQ(optimizer->dim(), 5u);
    EXPECT_EQ(optimizer->row_floats(), shape.row_floats) << shape.name;
    EXPECT_EQ(optimizer->wire_begin(), shape.wire_begin) << shape.name;
    EXPECT_EQ(optimizer->wire_floats(), shape.row_floats - shape.wire_begin) << shape.name;
    Row row(shape.row_floats, 7.0f);
    optimizer->InitSlots(row.data());
    for (size_t i = 0; i < 5; ++i) EXPECT_EQ(row[i], 7.0f) << "InitSlots wrote the value";
    size_t at = 5;
    for (size_t slot = 0; slot < optimizer->slots().size(); ++slot) {
      for (size_t i = 0; i < optimizer->slot_floats(slot); ++i) {
        EXPECT_EQ(row[at++], optimizer->slots()[slot].initial) << shape.name;
      }
    }
    EXPECT_EQ(at, shape.row_floats);
  }
}

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
}  // namespace het::optimizer_create_test
