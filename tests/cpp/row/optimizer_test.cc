// The algebra of updates, for every optimizer and for widths that are and are not whole SIMD registers. That
// the formulas are the right ones is asked elsewhere: tests/python/layer/test_optimizers.py.
#include "het_tf/core/row/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace het::optimizer_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Row = std::vector<float>;

std::unique_ptr<Optimizer> Make(const OptimizerSpec& spec, size_t dim) {
  auto made = Optimizer::Create(spec, dim);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? std::move(made.value()) : nullptr;
}

// --- Create: the unhappy path

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

TEST(OptimizerCreate, ValueOutOfRangeNamesParameterValueAndRange) {
  EXPECT_THAT(Refusal({"adam", {{"beta_1", 1.0}}}),
              AllOf(HasSubstr("'beta_1'"), HasSubstr("is 1;"), HasSubstr("from 0 to 0.9999999")));
  EXPECT_THAT(Refusal({"momentum", {{"nesterov", 0.5}}}),
              AllOf(HasSubstr("'nesterov'"), HasSubstr("0 or 1")));
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (double bad : {-1.0, nan, inf, -inf}) {
    for (const auto& [name, param] :
         std::vector<std::pair<std::string, std::string>>{{"momentum", "momentum"},
                                                          {"momentum", "nesterov"},
                                                          {"rmsprop", "rho"},
                                                          {"rmsprop", "epsilon"},
                                                          {"adam", "beta_2"},
                                                          {"adam", "epsilon"},
                                                          {"adagrad", "epsilon"},
                                                          {"adagrad", "initial_accumulator"},
                                                          {"row_wise_adagrad", "initial_accumulator"},
                                                          {"ftrl", "l1"},
                                                          {"ftrl", "l2"},
                                                          {"ftrl", "beta"},
                                                          {"ftrl", "l2_shrinkage"},
                                                          {"ftrl", "initial_accumulator"}}) {
      EXPECT_THAT(Refusal({name, {{param, bad}}}), HasSubstr("'" + param + "'"));
    }
  }
  EXPECT_THAT(Refusal({"adagrad", {{"epsilon", 0.0}}}), HasSubstr("'epsilon' is 0;"));  // else 0 / 0
}

TEST(OptimizerCreate, DimZero) { EXPECT_THAT(Refusal({"adam", {}}, 0), HasSubstr("dim is 0")); }

TEST(OptimizerCreate, EveryNameHasDefaults) {
  for (const std::string& name : Optimizer::Names()) EXPECT_NE(Make({name, {}}, 3), nullptr) << name;
}

// --- Layout

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
    const auto optimizer = Make({shape.name, {}}, 5);
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

TEST(OptimizerLayout, InitialAccumulatorIsAParameter) {
  for (const char* name : {"adagrad", "row_wise_adagrad"}) {
    EXPECT_EQ(Make({name, {}}, 2)->slots()[0].initial, 0.1f);
    EXPECT_EQ(Make({name, {{"initial_accumulator", 0.5}}}, 2)->slots()[0].initial, 0.5f);
  }
  EXPECT_EQ(Make({"ftrl", {{"initial_accumulator", 0.5}}}, 2)->slots()[1].initial, 0.5f);
}

// --- The algebra

class OptimizerAlgebra : public ::testing::TestWithParam<std::tuple<OptimizerSpec, size_t>> {
 protected:
  OptimizerAlgebra() : optimizer_(Make(std::get<0>(GetParam()), std::get<1>(GetParam()))) {}

  struct Update {
    Row terms;
    uint32_t ticks = 0;
  };

  size_t dim() const { return optimizer_->dim(); }
  float Uniform(float low, float high) { return std::uniform_real_distribution<float>(low, high)(random_); }
  uint32_t Ticks(uint32_t high) { return std::uniform_int_distribution<uint32_t>(1, high)(random_); }

  Row FreshRow() {
    Row row(optimizer_->row_floats());
    for (size_t i = 0; i < dim(); ++i) row[i] = Uniform(-1, 1);
    optimizer_->InitSlots(row.data());
    return row;
  }

  Update Identity() const {
    Update update{Row(optimizer_->row_floats(), 9.0f), 0};
    optimizer_->Identity(update.terms.data());
    return update;
  }

  // A tick with a random gradient and a learning rate that changes, as under a schedule.
  void Tick(Row& row, Update* update) {
    Row g(dim());
    for (float& x : g) x = Uniform(-1, 1);
    optimizer_->Apply(Uniform(0.01f, 0.1f), g.data(), row.data(), update ? update->terms.data() : nullptr);
    if (update) ++update->ticks;
  }

  void Merge(const Update& update, Row& row) const {
    optimizer_->MergeInto(update.terms.data(), update.ticks, row.data());
  }

  Update Compose(const Update& later, Update earlier) const {
    optimizer_->Compose(later.terms.data(), later.ticks, earlier.terms.data());
    earlier.ticks += later.ticks;
    return earlier;
  }

  // An update as some worker might have produced it.
  Update RandomUpdate() {
    Update update = Identity();
    Row row = FreshRow();
    for (uint32_t p = Ticks(7); p > 0; --p) Tick(row, &update);
    return update;
  }

  // 1e-6 of the largest magnitude in the same part of the row, and of 1 where all are smaller.
  void ExpectNear(const Row& x, const Row& y, const std::string& what) const {
    ASSERT_EQ(x.size(), y.size());
    size_t at = 0;
    for (size_t part = 0; part <= optimizer_->slots().size(); ++part) {
      const size_t end = at + (part == 0 ? dim() : optimizer_->slot_floats(part - 1));
      float scale = 1;
      for (size_t i = at; i < end; ++i) scale = std::max({scale, std::fabs(x[i]), std::fabs(y[i])});
      const std::string name = part == 0 ? "value" : optimizer_->slots()[part - 1].name;
      for (size_t i = at; i < end; ++i) EXPECT_NEAR(x[i], y[i], 1e-6f * scale) << what << ": " << name;
      at = end;
    }
  }

  std::unique_ptr<Optimizer> optimizer_;
  std::mt19937 random_{20220919};
};

TEST_P(OptimizerAlgebra, OneWorkerIsExactWheneverItPushes) {
  for (int round = 0; round < 20; ++round) {
    Row server = FreshRow(), worker = server;
    for (int push = 0; push < 4; ++push) {
      Update update = Identity();
      for (uint32_t p = Ticks(10); p > 0; --p) Tick(worker, &update);
      Merge(update, server);
    }
    ExpectNear(server, worker, "server against worker");
  }
}

TEST_P(OptimizerAlgebra, TrackingDoesNotChangeTheRow) {
  Row tracked = FreshRow(), plain = tracked;
  Update update = Identity();
  for (int tick = 0; tick < 20; ++tick) {
    const auto state = random_;
    Tick(tracked, &update);
    random_ = state;
    Tick(plain, nullptr);
    ASSERT_EQ(std::memcmp(tracked.data(), plain.data(), plain.size() * sizeof(float)), 0) << "tick " << tick;
  }
}

TEST_P(OptimizerAlgebra, ApplyComposesOntoTheUpdateItIsGiven) {
  for (int round = 0; round < 20; ++round) {
    const Update earlier = RandomUpdate();
    Update onto = earlier, later = Identity();
    Row x = FreshRow(), y = x;
    const auto state = random_;
    for (int tick = 0; tick < 5; ++tick) Tick(x, &onto);
    random_ = state;
    for (int tick = 0; tick < 5; ++tick) Tick(y, &later);
    ExpectNear(onto.terms, Compose(later, earlier).terms, "ticks onto an update");
  }
}

TEST_P(OptimizerAlgebra, MergingACompositionIsMergingInTurn) {
  for (int round = 0; round < 50; ++round) {
    const Update u1 = RandomUpdate(), u2 = RandomUpdate();
    Row at_once = FreshRow();
    Tick(at_once, nullptr);
    Row in_turn = at_once;
    Merge(Compose(u2, u1), at_once);
    Merge(u1, in_turn);
    Merge(u2, in_turn);
    ExpectNear(at_once, in_turn, "U2 after U1");
  }
}

TEST_P(OptimizerAlgebra, CompositionIsAssociative) {
  for (int round = 0; round < 50; ++round) {
    const Update u1 = RandomUpdate(), u2 = RandomUpdate(), u3 = RandomUpdate();
    const Update left = Compose(Compose(u3, u2), u1), right = Compose(u3, Compose(u2, u1));
    EXPECT_EQ(left.ticks, right.ticks);
    ExpectNear(left.terms, right.terms, "(U3 U2) U1 against U3 (U2 U1)");
  }
}

TEST_P(OptimizerAlgebra, IdentityChangesNothing) {
  const Update u = RandomUpdate(), one = Identity();
  EXPECT_THAT(one.terms, ::testing::Each(0.0f));
  EXPECT_EQ(Compose(one, u).terms, u.terms);
  EXPECT_EQ(Compose(u, one).terms, u.terms);
  Row row = FreshRow();
  const Row fresh = row;
  Merge(one, row);
  EXPECT_EQ(row, fresh) << "a row that was never written";
  Tick(row, nullptr);
  const Row written = row;
  Merge(one, row);
  EXPECT_EQ(row, written) << "a written row";
}

// Two workers from one row, their pushes interleaved: whatever is additive arrives exactly once.
TEST_P(OptimizerAlgebra, TwoWorkersConserveAdditiveSlotsAndTicks) {
  for (int round = 0; round < 10; ++round) {
    const Row start = FreshRow();
    Row server = start, worker[2] = {start, start};
    std::vector<double> sum(start.begin(), start.end());
    Update pending[2] = {Identity(), Identity()};
    uint32_t ticks = 0, pushed = 0;
    const auto push = [&](int who) {
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += pending[who].terms[i];
      pushed += pending[who].ticks;
      Merge(pending[who], server);
      pending[who] = Identity();
    };
    for (int event = 0; event < 40; ++event) {
      const int who = static_cast<int>(random_() % 2);
      Tick(worker[who], &pending[who]);
      ++ticks;
      if (random_() % 3 == 0) push(who);
      if (random_() % 5 == 0)
        worker[who] = Compose(pending[who], {server, 0}).terms;  // fetched: server, then own
    }
    push(0);
    push(1);
    EXPECT_EQ(pushed, ticks);

    const Row conserved(sum.begin(), sum.end());
    Row expected = server;
    if (!optimizer_->value_is_derived()) std::copy_n(conserved.begin(), dim(), expected.begin());
    size_t at = dim();
    for (size_t slot = 0; slot < optimizer_->slots().size(); ++slot) {
      const size_t n = optimizer_->slot_floats(slot);
      if (optimizer_->slots()[slot].merge == Merge::kAdd) std::copy_n(&conserved[at], n, &expected[at]);
      if (optimizer_->slots()[slot].name == "step") {
        EXPECT_EQ(server[at], static_cast<float>(ticks));
      }
      at += n;
    }
    ExpectNear(server, expected, "server against the sum of the pushes");
  }
}

TEST_P(OptimizerAlgebra, ZeroGradientsStayFinite) {
  Row row = FreshRow();
  Update update = Identity();
  const Row g(dim(), 0.0f);
  for (int tick = 0; tick < 3; ++tick) {
    optimizer_->Apply(0.1f, g.data(), row.data(), update.terms.data());
    ++update.ticks;
  }
  for (float x : row) EXPECT_TRUE(std::isfinite(x));
  for (float x : update.terms) EXPECT_TRUE(std::isfinite(x));
}

TEST_P(OptimizerAlgebra, NobodyWritesBeyondARow) {
  constexpr float kGuard = 12345.0f;
  const size_t n = optimizer_->row_floats();
  const auto guarded = [&](const Row& row) {
    Row wide(n + 32, kGuard);
    std::copy(row.begin(), row.end(), wide.begin() + 16);
    return wide;
  };
  const auto expect_guards = [&](const Row& wide, const char* who) {
    for (size_t i = 0; i < 16; ++i) {
      EXPECT_EQ(wide[i], kGuard) << who;
      EXPECT_EQ(wide[n + 16 + i], kGuard) << who;
    }
  };
  Row row = guarded(FreshRow()), update = guarded(Identity().terms);
  const Row g(dim(), 0.5f);
  optimizer_->InitSlots(row.data() + 16);
  optimizer_->Identity(update.data() + 16);
  for (int tick = 0; tick < 3; ++tick) optimizer_->Apply(0.1f, g.data(), row.data() + 16, update.data() + 16);
  const Update other = RandomUpdate();
  optimizer_->Compose(other.terms.data(), other.ticks, update.data() + 16);
  expect_guards(update, "update");
  optimizer_->MergeInto(update.data() + 16, 3, row.data() + 16);
  expect_guards(row, "row");
}

std::string NameOf(const ::testing::TestParamInfo<std::tuple<OptimizerSpec, size_t>>& info) {
  const OptimizerSpec& spec = std::get<0>(info.param);
  std::string name = spec.name;
  for (const auto& param : spec.params) name += "_" + param.first;
  return name + "_" + std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(
    All, OptimizerAlgebra,
    ::testing::Combine(
        ::testing::Values(OptimizerSpec{"sgd", {}}, OptimizerSpec{"momentum", {}},
                          OptimizerSpec{"momentum", {{"nesterov", 1}}}, OptimizerSpec{"rmsprop", {}},
                          OptimizerSpec{"adam", {}}, OptimizerSpec{"adagrad", {}},
                          OptimizerSpec{"row_wise_adagrad", {}}, OptimizerSpec{"ftrl", {}},
                          OptimizerSpec{"ftrl",
                                        {{"l1", 0.5}, {"l2", 0.3}, {"beta", 1}, {"l2_shrinkage", 0.1}}},
                          OptimizerSpec{"ftrl", {{"initial_accumulator", 0}}}),
        ::testing::Values(1, 3, 4, 16, 33)),
    NameOf);

// --- What only some have

TEST(Momentum, DecaysByAnyNumberOfTicks) {
  const auto optimizer = Make({"momentum", {{"momentum", 0.999}}}, 1);
  const Row nothing(2, 0.0f);
  for (uint32_t p : {0u, 1u, 2u, 3u, 31u, 1000u, 65537u, 4294967295u}) {
    Row row = {0, 1};
    optimizer->MergeInto(nothing.data(), p, row.data());
    const double expected = std::pow(static_cast<double>(0.999f), p);
    EXPECT_NEAR(row[1], expected, 1e-7 * expected) << p;
  }
}

TEST(Sgd, TwoWorkersAreExactOnIntegers) {
  const auto optimizer = Make({"sgd", {}}, 3);
  Row row = {1, 2, 3}, update(3);
  optimizer->Identity(update.data());
  const Row g = {2, -4, 6};
  for (int tick = 0; tick < 2; ++tick) {
    Row other = row;
    optimizer->Apply(0.5f, g.data(), other.data(), update.data());
  }
  optimizer->MergeInto(update.data(), 2, row.data());
  EXPECT_EQ(row, (Row{-1, 6, -3}));
}

// Around the ends of its table (18 014 corrections at 0.999, the most at 0.99999), and far beyond.
TEST(Adam, BiasCorrectionAtAnyStep) {
  for (double beta_2 : {0.0, 0.99, 0.999, 0.99999}) {
    const auto optimizer = Make({"adam", {{"beta_2", beta_2}}}, 1);
    for (int t :
         {1, 2, 100, 1799, 5000, 18011, 18012, 18013, 18014, 65534, 65535, 65536, 65537, 2000000, 16777216}) {
      Row row = {0, 0, 0, static_cast<float>(t - 1)};
      const float g = 1.0f;
      optimizer->Apply(1.0f, &g, row.data(), nullptr);
      const double correction = std::sqrt(1 - std::pow(beta_2, t)) / (1 - std::pow(0.9, t));
      const double expected = -correction * 0.1 / (std::sqrt(1 - beta_2) + 1e-7);
      EXPECT_NEAR(row[0], expected, 1e-6 * std::fabs(expected)) << "beta_2 " << beta_2 << " step " << t;
    }
  }
}

TEST(RowWiseAdagrad, IsAdagradAtDimOne) {
  const auto one = Make({"row_wise_adagrad", {}}, 1), all = Make({"adagrad", {}}, 1);
  Row x = {0.5f, 0.1f}, y = x;
  for (float g : {1.0f, -0.3f, 0.0f, 2.0f}) {
    one->Apply(0.1f, &g, x.data(), nullptr);
    all->Apply(0.1f, &g, y.data(), nullptr);
    EXPECT_FLOAT_EQ(x[0], y[0]);
    EXPECT_EQ(x[1], y[1]);
  }
}

TEST(RowWiseAdagrad, MeanSquareCountsEveryElementOnce) {
  for (size_t dim = 1; dim <= 40; ++dim) {
    const auto optimizer = Make({"row_wise_adagrad", {{"initial_accumulator", 0}}}, dim);
    Row row(dim + 1, 0.0f), g(dim);
    double sum = 0;
    for (size_t i = 0; i < dim; ++i) sum += std::pow(g[i] = static_cast<float>(i + 1), 2);
    optimizer->Apply(0.1f, g.data(), row.data(), nullptr);
    EXPECT_FLOAT_EQ(row[dim], static_cast<float>(sum / static_cast<double>(dim))) << dim;
  }
}

TEST(Ftrl, TheValueIsAFunctionOfTheSlots) {
  const auto optimizer = Make({"ftrl", {{"l1", 0.25}, {"l2", 0.5}, {"beta", 1}}}, 3);
  Row row = {9, 9, 9, /*z*/ 0.25f, 1.25f, -2.25f, /*n*/ 4, 4, 9, /*learning_rate*/ 0.5f};
  const Row identity(10, 0.0f);
  optimizer->MergeInto(identity.data(), 0, row.data());
  EXPECT_EQ(row[0], 0.0f);  // |z| <= l1
  EXPECT_FLOAT_EQ(row[1], -1.0f / ((1 + 2) / 0.5f + 1));
  EXPECT_FLOAT_EQ(row[2], 2.0f / ((1 + 3) / 0.5f + 1));
}

TEST(Ftrl, ZeroLearningRateLeavesRowAndUpdate) {
  const auto optimizer = Make({"ftrl", {}}, 2);
  const Row g = {1, -1};
  Row row = {0.5f, -0.5f, 0, 0, 0.1f, 0.1f, 0}, update(7, 0.0f);
  const Row fresh = row;
  optimizer->Apply(0.0f, g.data(), row.data(), update.data());
  EXPECT_EQ(row, fresh);
  EXPECT_THAT(update, ::testing::Each(0.0f));
  optimizer->Apply(0.1f, g.data(), row.data(), update.data());
  const Row written = row, pending = update;
  optimizer->Apply(0.0f, g.data(), row.data(), update.data());
  EXPECT_EQ(row, written);
  EXPECT_EQ(update, pending);
}

TEST(Ftrl, AnElementWithoutGradientKeepsItsValueWhereKerasDividesZeroByZero) {
  const auto optimizer = Make({"ftrl", {{"initial_accumulator", 0}}}, 2);
  Row row = {0.5f, 0.25f, 0, 0, 0, 0, 0};
  const Row g = {1, 0};
  optimizer->Apply(0.1f, g.data(), row.data(), nullptr);
  EXPECT_NE(row[0], 0.5f);
  EXPECT_EQ(row[1], 0.25f);
}

TEST(Ftrl, TheLastLearningRateTravels) {
  const auto optimizer = Make({"ftrl", {}}, 1);
  Row u1 = {0, 1, 1, 0.1f}, u2 = {0, 1, 1, 0.2f}, none = {0, 0, 0, 0};
  optimizer->Compose(u2.data(), 1, u1.data());
  EXPECT_EQ(u1[3], 0.2f);
  optimizer->Compose(none.data(), 0, u1.data());
  EXPECT_EQ(u1[3], 0.2f);
}

}  // namespace
}  // namespace het::optimizer_test
