// Gradients that are kept, and applied by their tickets (engine/kept_gradients.h).
#include "het_tf/core/engine/kept_gradients.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "het_tf/core/engine/engine.h"
#include "tests/testing/optimizer_of.h"
#include "tests/testing/random.h"
#include "tests/testing/table_specs.h"

namespace het::testing::kept_gradients_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint32_t kDim = 2;
constexpr uint32_t kSlots = KeptGradients::kSlots;

using Tickets = std::vector<float>;  // of one variable: [kSlots, 2]
using Ids = std::vector<int64_t>;
using Rows = std::map<Key, std::pair<Clock, std::vector<float>>>;  // key -> clock and row

Tickets operator*(float factor, Tickets tickets) {
  for (float& value : tickets) value *= factor;
  return tickets;
}
Tickets operator+(Tickets a, const Tickets& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

// A worker with tables "a" and "b", and one layer with a feature for each. Table t is of variable 10 + t.
class Worker {
 public:
  explicit Worker(const TableOptions& options = {}, const std::string& optimizer = "sgd", uint32_t rank = 0)
      : rank_(rank) {
    for (const char* name : {"a", "b"}) {
      TableSpec spec = NewSpec(name, kDim, OptimizerOf(optimizer), {"zeros", 0, 0});
      EXPECT_TRUE(engine_.tables().Create(spec, options).ok());
      tables_.push_back(engine_.tables().Find(name).value());
    }
  }
  Engine& engine() { return engine_; }

  // Looks up ids of table a, and of table b.
  uint64_t Lookup(const Ids& a, const Ids& b = {}, std::vector<float>* rows = nullptr) {
    std::vector<float> of_a(a.size() * kDim), of_b(b.size() * kDim);
    float* const out[] = {of_a.data(), of_b.data()};
    uint64_t token = 0;
    const Status status = WithCall(a, b, [&](const BatchCall& call) {
      return engine_.steps().Lookup(call, {out, 2}, &token);
    });
    EXPECT_TRUE(status.ok()) << status.message();
    if (rows != nullptr) *rows = of_a;
    return token;
  }
  // Takes a gradient; returns the tickets of variable 10, and with *of_b those of variable 11.
  Tickets Keep(uint64_t token, const Ids& a, const std::vector<float>& gradient, const Ids& b = {},
               const std::vector<float>& gradient_of_b = {}, Tickets* of_b = nullptr) {
    const uint64_t variables[] = {10, 11};
    Tickets both(2 * kSlots * 2);
    const Status status = WithGradients(token, a, gradient, b, gradient_of_b, [&](auto& call, auto& args) {
      return engine_.steps().Keep(call, args, {variables, 2}, rank_, nullptr, both.data());
    });
    EXPECT_TRUE(status.ok()) << status.message();
    if (of_b != nullptr) of_b->assign(both.begin() + kSlots * 2, both.end());
    both.resize(kSlots * 2);
    return both;
  }
  // A lookup and its gradient, which is the same for all floats.
  Tickets Take(const Ids& ids, float gradient) {
    const uint64_t token = Lookup(ids);
    return Keep(token, ids, std::vector<float>(ids.size() * kDim, gradient));
  }
  // Applies gradients of table `t` with learning rate 1.
  Status Apply(const Tickets& tickets, uint32_t t = 0, float scale = 1) {
    const float rate = 1;
    return engine_.steps().ApplyKept(
        {10 + uint64_t{t}, {&tables_[t], 1}, {tickets.data(), tickets.size()}, {&rate, 1}, scale});
  }
  double Norm(const Tickets& tickets, double order) {
    return engine_.steps()
        .NormOfKept({10, {tables_.data(), 1}, {tickets.data(), tickets.size()}, {}}, order)
        .value();
  }
  // Apply by a variable of both tables.
  Status ApplyBoth(const Tickets& tickets) {
    const float rates[] = {1, 1};
    return engine_.steps().ApplyKept({10, {tables_.data(), 2}, {tickets.data(), tickets.size()}, {rates, 2}});
  }
  // Drops table a and makes it again.
  void MakeAgain() {
    const TableSpec spec = tables_[0]->schema->spec();
    const TableOptions options = tables_[0]->options;
    ASSERT_TRUE(engine_.tables().Drop("a").ok());
    ASSERT_TRUE(engine_.tables().Create(spec, options).ok());
    tables_[0] = engine_.tables().Find("a").value();
  }
  Rows Of(const char* table = "a") {
    const TableRows all = engine_.tables().Scan(table).value();
    const size_t floats = all.keys.empty() ? 0 : all.rows.size() / all.keys.size();
    Rows rows;
    for (size_t i = 0; i < all.keys.size(); ++i) {
      const float* const row = all.rows.data() + i * floats;
      rows[all.keys[i]] = {all.clocks[i], std::vector<float>(row, row + floats)};
    }
    return rows;
  }
  int64_t dropped(const char* table = "a") { return engine_.tables().Stats(table).value().dropped; }

 private:
  template <typename Fn>
  Status WithCall(const Ids& a, const Ids& b, Fn fn) {
    const FeatureIds features[] = {{0, {a.data(), a.size()}, {}}, {1, {b.data(), b.size()}, {}}};
    return fn(BatchCall{{tables_.data(), 2}, {features, 2}, 1});
  }
  template <typename Fn>
  Status WithGradients(uint64_t token, const Ids& a, const std::vector<float>& gradient, const Ids& b,
                       const std::vector<float>& gradient_of_b, Fn fn) {
    const float* const gradients[] = {gradient.data(), gradient_of_b.data()};
    const float rates[] = {1, 1};
    ApplyArgs args;
    args.token = token;
    args.gradients = {gradients, 2};
    args.learning_rates = {rates, 2};
    return WithCall(a, b, [&](const BatchCall& call) { return fn(call, args); });
  }

  const uint32_t rank_;
  Engine engine_{"worker"};
  std::vector<TablePtr> tables_;
};

std::pair<Clock, std::vector<float>> Row(Clock clock, float value) { return {clock, {value, value}}; }

TableOptions Cached(size_t capacity, int64_t bound) {
  TableOptions options;
  options.cache = CacheConfig();
  options.cache->capacity = capacity;
  options.cache->pull_bound = options.cache->push_bound = bound;
  return options;
}

struct Mode {
  const char* name;
  TableOptions options;
};

class Kept : public ::testing::TestWithParam<Mode> {
 protected:
  Worker worker_{GetParam().options};
};

INSTANTIATE_TEST_SUITE_P(Modes, Kept,
                         ::testing::Values(Mode{"direct", {}}, Mode{"cached", Cached(1000, 0)},
                                           Mode{"evicting", Cached(3, 2)}, Mode{"uncached", Cached(0, 10)}),
                         [](const auto& info) { return info.param.name; });

TEST_P(Kept, ChangesRowsOnlyWhenItIsApplied) {
  const Tickets tickets = worker_.Take({7, 9, 7}, -1);
  EXPECT_THAT(worker_.Of(), ElementsAre());
  ASSERT_TRUE(worker_.Apply(tickets).ok());
  EXPECT_THAT(worker_.Of(), ElementsAre(std::make_pair(7, Row(1, 2)), std::make_pair(9, Row(1, 1))));
  EXPECT_EQ(worker_.dropped(), 0);
}

// Defect: two calls of a layer are two updates of a shared row.
TEST_P(Kept, GradientsThatAreAppliedTogetherAreOneTickOfTheirSum) {
  const Ids first = {1, 2}, second = {2, 3};
  const uint64_t tokens[] = {worker_.Lookup(first), worker_.Lookup(second)};
  const Tickets a = worker_.Keep(tokens[1], second, {-1, -1, -2, -2});
  const Tickets b = worker_.Keep(tokens[0], first, {-4, -4, -8, -8});
  ASSERT_TRUE(worker_.Apply(a + 0.5f * b, 0, 2).ok());
  EXPECT_THAT(worker_.Of(), ElementsAre(std::make_pair(1, Row(1, 4)), std::make_pair(2, Row(1, 10)),
                                        std::make_pair(3, Row(1, 4))));
}

TEST_P(Kept, TheFactorOfATicketIsThatOfItsGradient) {
  for (const float factor : {0.5f, -2.0f, 1024.0f}) {
    const float before = worker_.Of().count(5) == 0 ? 0 : worker_.Of()[5].second[0];
    ASSERT_TRUE(worker_.Apply(factor * worker_.Take({5, 6}, -1)).ok());
    EXPECT_EQ(worker_.Of()[5].second[0], before + factor);
    ASSERT_TRUE(worker_.Apply(worker_.Take({5, 6}, -1), 0, factor).ok()) << "the scale of the call";
    EXPECT_EQ(worker_.Of()[5].second[0], before + 2 * factor);
  }
  EXPECT_EQ(worker_.Of()[5].first, 6);
}

// The norm, so that clipping by the norm of all gradients is exact. Defect: equal ids are not summed before.
TEST_P(Kept, TheNormOfATicketIsThatOfTheRowsGradients) {
  const Tickets tickets = worker_.Take({1, 2, 1}, 1);
  EXPECT_NEAR(std::hypot(tickets[0], tickets[1]), std::sqrt(2 * 4 + 2 * 1), 1e-6);
}

// As a persistent tape takes them.
TEST_P(Kept, EachGradientOfALookupHasItsTicket) {
  const uint64_t token = worker_.Lookup({1, 2});
  const Tickets first = worker_.Keep(token, {1, 2}, {-1, -1, -1, -1});
  const Tickets second = worker_.Keep(token, {1, 2}, {-10, -10, -20, -20});
  ASSERT_TRUE(worker_.Apply(second).ok());
  EXPECT_THAT(worker_.Of(), ElementsAre(std::make_pair(1, Row(1, 10)), std::make_pair(2, Row(1, 20))));
  ASSERT_TRUE(worker_.Apply(first + second).ok());
  EXPECT_THAT(worker_.Of(), ElementsAre(std::make_pair(1, Row(2, 21)), std::make_pair(2, Row(2, 41))));
}

TEST_P(Kept, EachApplyIsAnUpdateUntilTheNextLookup) {
  const Tickets tickets = worker_.Take({1}, -1);
  for (int i = 1; i <= 3; ++i) {
    ASSERT_TRUE(worker_.Apply(tickets).ok());
    EXPECT_THAT(worker_.Of(), ElementsAre(std::make_pair(1, Row(i, static_cast<float>(i)))));
  }
  static_cast<void>(worker_.Lookup({2}));
  const Status late = worker_.Apply(tickets);
  EXPECT_EQ(late.code(), Code::kFailedPrecondition);
  EXPECT_THAT(late.message(), HasSubstr("table 'a' is applied that is not kept any more"));
  EXPECT_EQ(worker_.Of()[1].first, 3);
  EXPECT_EQ(worker_.dropped(), 0);
}

// Defect: a gradient that is never applied stays for ever, or its slot's next one is taken for it.
TEST_P(Kept, TheNewestAreKeptAndOthersAreCounted) {
  constexpr uint32_t kKept = kSlots * KeptGradients::kTurns;
  std::vector<Tickets> taken;
  for (uint32_t i = 0; i < kKept + 3; ++i) taken.push_back(worker_.Take({i}, -1));
  EXPECT_EQ(worker_.dropped("a"), 3);
  EXPECT_EQ(worker_.dropped("b"), 3);
  EXPECT_EQ(worker_.engine().tables().Size("a").value(), 0u);
  for (uint32_t i = 0; i < 3; ++i) {
    const Status status = worker_.Apply(taken[i]);
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("the newest 64 gradients"));
  }
  EXPECT_EQ(worker_.engine().tables().Size("a").value(), 0u);
  ASSERT_TRUE(worker_.Apply(taken[3]).ok());
  ASSERT_TRUE(worker_.Apply(taken[kKept + 2]).ok());
  EXPECT_THAT(worker_.Of(), ElementsAre(std::make_pair(3, Row(1, 1)), std::make_pair(kKept + 2, Row(1, 1))));
  // An update ends the step: a slot keeps none of an older one beside a new gradient.
  for (uint32_t i = 0; i < kSlots; ++i) static_cast<void>(worker_.Take({i}, -1));
  EXPECT_EQ(worker_.dropped("a"), 3 + kKept - 2);
}

// Defect: a sum of more gradients than there are slots is refused, or rounds the factor of its gradients.
TEST_P(Kept, ManyGradientsOfAStepHaveOneFactor) {
  for (const uint32_t taken : {kSlots + 1, 100u, kSlots * KeptGradients::kTurns}) {
    const float before = worker_.Of().count(1) == 0 ? 0 : worker_.Of()[1].second[0];
    Tickets sum(2 * kSlots);
    for (uint32_t i = 0; i < taken; ++i) sum = sum + worker_.Take({1, static_cast<int64_t>(2 + i)}, -0.125f);
    ASSERT_TRUE(worker_.Apply(0.5f * sum).ok());
    EXPECT_EQ(worker_.Of()[1].second[0], before + 0.0625f * static_cast<float>(taken));
  }
  const Tickets first = worker_.Take({1}, -1);
  for (uint32_t i = 1; i < kSlots; ++i) static_cast<void>(worker_.Take({1}, -1));
  const Status status = worker_.Apply(first + 0.5f * worker_.Take({1}, -1));
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("adds up those of more than 64 calls"));
}

// Defect: the root of the sum of squares, which is too small where calls share ids.
TEST_P(Kept, TheNormOfASumIsThatOfItsRows) {
  const Tickets sum = worker_.Take({1, 2}, 3) + 2 * worker_.Take({2, 3}, -2);  // 3, 3 - 4, -4
  EXPECT_NEAR(worker_.Norm(sum, 2), std::sqrt(2.0 * (9 + 1 + 16)), 1e-5);
  EXPECT_NEAR(worker_.Norm(sum, 1), 2 * (3 + 1 + 4), 1e-5);
  EXPECT_NEAR(worker_.Norm(sum, INFINITY), 4, 1e-5);
  EXPECT_TRUE(std::isnan(worker_.Norm(NAN * sum, 2)));
  ASSERT_TRUE(worker_.Apply(sum).ok()) << "it may be read before";
  EXPECT_EQ(worker_.Norm(Tickets(2 * kSlots), 2), 0);
}

// Defect: a sign, a clip by value or a mean over workers trains rows by some factor.
// While one thread applies a gradient, others take so many that its slot is another's.
TEST(KeptSlots, AGradientInTheSlotOfAnAppliedOneStays) {
  KeptGradients kept;
  const auto keep = [&kept] {
    const auto gradient = std::make_shared<KeptGradient>();
    gradient->layer = 1;
    return kept.Keep(7, gradient, 1, 0);
  };
  const auto choose = [&kept](const KeptGradients::Given& given) {
    Tickets tickets(2 * kSlots);
    std::copy(given.ticket.begin(), given.ticket.end(), tickets.begin() + 2 * given.slot);
    return kept.Choose(7, "table 't'", tickets);
  };
  const KeptGradients::Given first = keep();
  const auto chosen = choose(first).value();
  KeptGradients::Given last;
  for (uint32_t i = 0; i < kSlots; ++i) last = keep();
  ASSERT_EQ(last.slot, first.slot);
  kept.SetApplied(7, chosen);
  kept.DropApplied(1);
  EXPECT_TRUE(choose(last).ok());
}

TEST_P(Kept, ATicketThatWasChangedOtherwiseIsRefused) {
  Worker other(GetParam().options, "sgd", 1);
  const Tickets mine = worker_.Take({1}, -1);
  const Tickets others = other.Take({1}, -1);
  Tickets sign(mine.size()), clipped = mine, swapped = mine;
  for (size_t i = 0; i < mine.size(); ++i) sign[i] = static_cast<float>((mine[i] > 0) - (mine[i] < 0));
  const size_t larger = mine[0] > mine[1] ? 0 : 1;
  clipped[larger] = mine[1 - larger];
  std::swap(swapped[0], swapped[1]);
  const Tickets changed[] = {sign, clipped, 0.5f * (mine + others), others, swapped};
  for (const Tickets& one : changed) {
    const Status status = worker_.Apply(one);
    const bool not_reduced = &one == &changed[4];
    EXPECT_EQ(status.code(), not_reduced ? Code::kFailedPrecondition : Code::kInvalidArgument);
    EXPECT_THAT(status.message(),
                HasSubstr(not_reduced ? "het_tf.workers.distribute(model)" : "not linear, or averaged"));
    EXPECT_THAT(worker_.Of(), ElementsAre());
  }
  ASSERT_TRUE(worker_.Apply(mine).ok()) << "nothing was consumed";
  EXPECT_THAT(worker_.Of(), ElementsAre(std::make_pair(1, Row(1, 1))));
}

TEST_P(Kept, AGradientThatIsNotFiniteFailsWhereItIsApplied) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    const uint64_t token = worker_.Lookup({5, 77});
    const Tickets tickets = worker_.Keep(token, {5, 77}, {1, 1, 1, bad});
    EXPECT_TRUE(std::isnan(tickets[2 * (token - 1)])) << "as a dense weight's, so that a loss scale sees it";
    const Status status = worker_.Apply(tickets);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("for id 77 is NaN or Inf"));
    EXPECT_THAT(worker_.Of(), ElementsAre());
  }
  const Tickets tickets = worker_.Take({5}, -1);
  Tickets of_all = tickets;
  of_all[6] = NAN;
  EXPECT_THAT(worker_.Apply(of_all).message(), HasSubstr("at another worker, or the factor"));
  EXPECT_THAT(worker_.Of(), ElementsAre());
  ASSERT_TRUE(worker_.Apply(tickets).ok());
}

TEST_P(Kept, AGradientOfZerosHasATicketAndTicksNothing) {
  const Tickets zeros = worker_.Take({1}, 0);
  EXPECT_GT(zeros[0], 0) << "all workers take part in a step";
  EXPECT_EQ(zeros[0] * zeros[0], 0) << "but no norm contains it";
  ASSERT_TRUE(worker_.Apply(zeros).ok());
  const Tickets again = worker_.Take({1}, 0);
  ASSERT_TRUE(worker_.Apply(again + worker_.Take({2}, -1)).ok());
  EXPECT_THAT(worker_.Of(), ElementsAre(std::make_pair(2, Row(1, 1))));
  EXPECT_EQ(worker_.dropped(), 0);
}

// Layers with a variable for each table: a frozen one, two optimizers.
TEST_P(Kept, VariablesOfOneCallAreAppliedApart) {
  Tickets of_b;
  const uint64_t token = worker_.Lookup({1, 2}, {1});
  const Tickets of_a = worker_.Keep(token, {1, 2}, {-3, -4, 0, 0}, {1}, {-6, -8}, &of_b);
  EXPECT_NEAR(std::hypot(of_a[0], of_a[1]), 5, 1e-5);
  EXPECT_NEAR(std::hypot(of_b[0], of_b[1]), 10, 1e-5);
  ASSERT_TRUE(worker_.Apply(0.5f * of_b, 1).ok());
  EXPECT_THAT(worker_.Of("a"), ElementsAre());
  EXPECT_EQ(worker_.Of("b")[1].second, (std::vector<float>{3, 4}));
  static_cast<void>(worker_.Lookup({20, 21, 22}, {23}));
  ASSERT_TRUE(worker_.Apply(of_a).ok());
  EXPECT_EQ(worker_.Of("a")[1].second, (std::vector<float>{3, 4}));
  EXPECT_EQ(worker_.Of("a")[2].first, 1) << "the feature has a gradient";
  EXPECT_EQ(worker_.Of("b")[1].first, 1);
}

// Defect: the other table of the call counts as dropped, or its gradient is taken for one that was lost.
TEST_P(Kept, AVariableMayStandForTablesThatACallLacks) {
  const Tickets of_a = worker_.Take({1}, -1);
  ASSERT_TRUE(worker_.ApplyBoth(of_a).ok()) << "table b is of another variable in this call";
  EXPECT_THAT(worker_.Of(), ElementsAre(std::make_pair(1, Row(1, 1))));
}

// Defect: a gradient is lost without a message where it is applied with another one.
TEST_P(Kept, ATableThatWasDroppedIsAnError) {
  const Tickets first = worker_.Take({1}, -1), second = worker_.Take({2}, -1);
  worker_.MakeAgain();
  for (const Tickets& tickets : {second, first + second}) {
    const Status status = worker_.Apply(tickets);
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("that is not kept any more"));
  }
  EXPECT_THAT(worker_.Of(), ElementsAre());
}

// Gradients that wait while rows come and go, against a map.
TEST_P(Kept, RandomLoopsEqualAMap) {
  struct Waiting {
    Tickets tickets;
    std::map<Key, float> sums;
  };
  Random random(4);
  std::vector<Waiting> waiting;
  std::map<Key, std::pair<Clock, float>> expected;
  for (int step = 0; step < 400; ++step) {
    Ids ids(1 + random.Below(8));
    for (int64_t& id : ids) id = random.Between(-9, 9);
    std::vector<float> rows, gradient;
    Waiting one;
    const uint64_t token = worker_.Lookup(ids, {}, &rows);
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(rows[i * kDim], expected.count(ids[i]) == 0 ? 0 : expected[ids[i]].second) << "step " << step;
      const auto g = static_cast<float>(random.Between(1, 4));
      gradient.insert(gradient.end(), kDim, g);
      one.sums[ids[i]] += g;
    }
    one.tickets = worker_.Keep(token, ids, gradient);
    waiting.push_back(std::move(one));
    while (!waiting.empty() && random.Chance(0.5)) {  // an apply of some of them
      Tickets tickets(2 * kSlots);
      std::map<Key, float> sums;
      for (uint64_t n = 1 + random.Below(3); n > 0 && !waiting.empty(); --n) {
        const size_t which = random.Below(waiting.size());
        const float factor = random.Pick(std::vector<float>{1, 0.5f, -1, 2});
        tickets = tickets + factor * waiting[which].tickets;
        for (const auto& [key, sum] : waiting[which].sums) sums[key] += factor * sum;
        waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(which));
      }
      const Status status = worker_.Apply(tickets);
      ASSERT_TRUE(status.ok()) << status.message();
      for (const auto& [key, sum] : sums) {
        ++expected[key].first;
        expected[key].second -= sum;
      }
    }
    if (waiting.size() > 10) waiting.erase(waiting.begin());
  }
  const Rows rows = worker_.Of();
  ASSERT_EQ(rows.size(), expected.size());
  for (const auto& [key, row] : expected) EXPECT_EQ(rows.at(key), Row(row.first, row.second)) << key;
  EXPECT_GT(worker_.dropped(), 5);
}

}  // namespace
}  // namespace het::testing::kept_gradients_test
