// The algebra of updates, for every optimizer and for widths that are and are not whole SIMD registers.
// tests/plugin/layer/test_optimizers.py tests the formulas.
#include "het_tf/core/row/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "tests/testing/optimizer_of.h"

namespace het::optimizer_test {
namespace {

using Row = std::vector<float>;
using testing::MakeOptimizer;

class OptimizerAlgebra : public ::testing::TestWithParam<std::tuple<OptimizerSpec, size_t>> {
 protected:
  OptimizerAlgebra() : optimizer_(MakeOptimizer(std::get<0>(GetParam()), std::get<1>(GetParam()))) {}

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

  Update Identity() const { return {Row(optimizer_->row_floats(), 0.0f), 0}; }

  // An age from the gradient, so that equal gradients meet equal ages.
  static float AgeFor(const Row& g) { return std::floor(50 * (g[0] + 1)); }

  // A tick with a random gradient and a changing learning rate, as under a schedule.
  void Tick(Row& row, Update* update) {
    Row g(dim());
    for (float& x : g) x = Uniform(-1, 1);
    optimizer_->Apply(Uniform(0.01f, 0.1f), g.data(), AgeFor(g), row.data(),
                      update ? update->terms.data() : nullptr);
    if (update) ++update->ticks;
  }

  void Merge(const Update& update, Row& row) const {
    optimizer_->MergeInto(update.terms.data(), update.ticks, row.data());
  }

  Update Compose(const Update& later, Update earlier) const {
    // Both operations are the same recurrence; an update of a derived value has none.
    Merge(later, earlier.terms);
    if (optimizer_->value_is_derived()) std::fill_n(earlier.terms.begin(), dim(), 0.0f);
    earlier.ticks += later.ticks;
    return earlier;
  }

  // An update that some worker might have produced.
  Update RandomUpdate() {
    Update update = Identity();
    Row row = FreshRow();
    for (uint32_t p = Ticks(7); p > 0; --p) Tick(row, &update);
    return update;
  }

  // 1e-6 of the largest magnitude in the same part of the row, or of 1 if all are smaller.
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

// Two workers start from one row, with interleaved pushes: additive terms arrive exactly once.
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
      if (random_() % 5 == 0) Merge(pending[who], worker[who] = server);  // fetched: server, then own
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
    optimizer_->Apply(0.1f, g.data(), 0, row.data(), update.terms.data());
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
  for (int tick = 0; tick < 3; ++tick)
    optimizer_->Apply(0.1f, g.data(), 0, row.data() + 16, update.data() + 16);
  const Update other = RandomUpdate();
  optimizer_->MergeInto(other.terms.data(), other.ticks, update.data() + 16);
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
        ::testing::Values(
            OptimizerSpec{"sgd", {}}, OptimizerSpec{"momentum", {}},
            OptimizerSpec{"momentum", {{"nesterov", 1}}}, OptimizerSpec{"rmsprop", {}},
            OptimizerSpec{"adam", {}}, OptimizerSpec{"adam", {{"beta_1", 0}}}, OptimizerSpec{"adagrad", {}},
            OptimizerSpec{"adagrad", {{"decay_steps", 5}}}, OptimizerSpec{"row_wise_adagrad", {}},
            OptimizerSpec{"row_wise_adagrad", {{"decay_steps", 1}}}, OptimizerSpec{"ftrl", {}},
            OptimizerSpec{"ftrl", {{"l1", 0.5}, {"l2", 0.3}, {"beta", 1}, {"l2_shrinkage", 0.1}}},
            OptimizerSpec{"ftrl", {{"initial_accumulator", 0}}}),
        ::testing::Values(1, 3, 4, 16, 33)),
    NameOf);

}  // namespace
}  // namespace het::optimizer_test
