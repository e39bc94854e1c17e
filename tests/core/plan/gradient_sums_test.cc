// Workers that sum their gradients equal one worker with all their batches; and damaged parts.
#include "het_tf/core/plan/gradient_sums.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <random>

#include "het_tf/core/engine/engine.h"
#include "tests/testing/keep_and_apply.h"
#include "tests/testing/status.h"
#include "tests/testing/sums_exchange.h"
#include "tests/testing/table_specs.h"

namespace het {
namespace {

using testing::SumsExchange;

constexpr uint32_t kDims[] = {3, 1};
constexpr uint32_t kTableOf[] = {0, 0, 1};  // of each feature
constexpr Key kPaddingId = -9;

std::unique_ptr<Engine> NewEngine(const std::string& optimizer) {
  auto engine = std::make_unique<Engine>("sums");
  for (uint32_t t = 0; t < 2; ++t) {
    TableSpec spec = testing::NewSpec(std::string(1, static_cast<char>('a' + t)), kDims[t], optimizer);
    EXPECT_TRUE(engine->tables().Create(spec, TableOptions()).ok());
  }
  return engine;
}

// One worker's part of a step: ids and gradients of three features.
struct Batch {
  std::vector<int64_t> ids[3];
  std::vector<float> gradients[3];

  void Append(const Batch& other) {
    for (int f = 0; f < 3; ++f) {
      ids[f].insert(ids[f].end(), other.ids[f].begin(), other.ids[f].end());
      gradients[f].insert(gradients[f].end(), other.gradients[f].begin(), other.gradients[f].end());
    }
  }
};

Batch RandomBatch(std::mt19937_64* random) {
  Batch batch;
  for (int f = 0; f < 3; ++f) {
    const bool zero = (*random)() % 3 == 0;  // an inactive feature
    const size_t n = (*random)() % 4 == 0 ? 0 : (*random)() % 12;
    for (size_t i = 0; i < n; ++i) {
      const uint64_t sign = (*random)() % 4 == 0 ? ~uint64_t{0} << 60 : 1;
      batch.ids[f].push_back((*random)() % 6 == 0 ? kPaddingId : static_cast<Key>((*random)() % 9 * sign));
      for (uint32_t d = 0; d < kDims[kTableOf[f]]; ++d) {
        batch.gradients[f].push_back(zero ? 0 : static_cast<float>(static_cast<int>((*random)() % 9) - 4));
      }
    }
  }
  return batch;
}

struct Call {
  Call(Engine* engine, const Batch& batch) {
    for (const char* name : {"a", "b"}) tables.push_back(engine->tables().Find(name).value());
    for (uint32_t f = 0; f < 3; ++f) {
      features.push_back({kTableOf[f], batch.ids[f], kPaddingId});
      out.emplace_back(batch.gradients[f].size());
      gradients.push_back(batch.gradients[f].data());
    }
    for (auto& rows : out) outs.push_back(rows.data());
    args.gradients = Span<const float* const>(gradients.data(), 3);
    args.learning_rates = Span<const float>(rates, 2);
    EXPECT_TRUE(engine->steps().Lookup(batch_call(), Span<float* const>(outs.data(), 3), &args.token).ok());
  }
  BatchCall batch_call() const {
    return {Span<const TablePtr>(tables.data(), 2), Span<const FeatureIds>(features.data(), 3)};
  }

  // What this worker sends.
  GradientSums KeepAndSum(Engine* engine, uint32_t workers) const {
    const uint64_t variables[] = {1, 1};
    std::vector<float> tickets(2 * KeptGradients::kSlots);
    EXPECT_TRUE(engine->steps().Keep(batch_call(), args, {variables, 2}, 0, nullptr, tickets.data()).ok());
    GradientSums sums;
    SumsLayout layout;
    const KeptCall kept{1, {tables.data(), 2}, tickets, args.learning_rates};
    EXPECT_TRUE(engine->steps().SumKept(kept, workers, &sums, &layout).ok());
    EXPECT_THAT(layout.dims, ::testing::ElementsAreArray(kDims));
    EXPECT_THAT(layout.table_of_feature, ::testing::ElementsAreArray(kTableOf));
    return sums;
  }

  std::vector<TablePtr> tables;
  std::vector<FeatureIds> features;
  std::vector<std::vector<float>> out;
  std::vector<float*> outs;
  std::vector<const float*> gradients;
  float rates[2] = {0.5f, 0.25f};
  ApplyArgs args;
};

SumsLayout Layout() {
  SumsLayout layout;
  layout.dims = {kDims[0], kDims[1]};
  layout.table_of_feature = {kTableOf[0], kTableOf[1], kTableOf[2]};
  layout.signature = 77;
  return layout;
}

using Rows = std::map<std::pair<std::string, Key>, std::vector<float>>;

void AddRows(Engine* engine, Rows* rows) {
  for (const char* name : {"a", "b"}) {
    const TableRows scan = engine->tables().Scan(name).value();
    const size_t width = scan.keys.empty() ? 0 : scan.rows.size() / scan.keys.size();
    for (size_t i = 0; i < scan.keys.size(); ++i) {
      auto& row = (*rows)[{name, scan.keys[i]}];
      EXPECT_TRUE(row.empty()) << "two workers have updated " << name << " " << scan.keys[i];
      row.assign(scan.rows.begin() + static_cast<std::ptrdiff_t>(i * width),
                 scan.rows.begin() + static_cast<std::ptrdiff_t>((i + 1) * width));
      row.push_back(static_cast<float>(scan.clocks[i]));
    }
  }
}

class GradientSumsTest : public ::testing::TestWithParam<std::tuple<std::string, uint32_t>> {};

INSTANTIATE_TEST_SUITE_P(Optimizers, GradientSumsTest,
                         ::testing::Combine(::testing::Values("sgd", "momentum", "rmsprop", "adam", "adagrad",
                                                              "row_wise_adagrad", "ftrl"),
                                            ::testing::Values(1u, 2u, 5u)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + std::to_string(std::get<1>(info.param));
                         });

// Gradients are small integers, whose sums are exact in any order: so every optimizer gives the same bits.
TEST_P(GradientSumsTest, ManyWorkersAreOneOnTheUnionBatch) {
  const auto& [optimizer, workers] = GetParam();
  std::mt19937_64 random(1);
  const std::unique_ptr<Engine> whole = NewEngine(optimizer);
  std::vector<std::unique_ptr<Engine>> engines;
  for (uint32_t w = 0; w < workers; ++w) engines.push_back(NewEngine(optimizer));
  for (int step = 0; step < 60; ++step) {
    Batch all;
    SumsExchange exchange(workers);
    for (uint32_t w = 0; w < workers; ++w) {
      const Batch batch = RandomBatch(&random);
      all.Append(batch);
      const Call call(engines[w].get(), batch);
      const GradientSums sums = call.KeepAndSum(engines[w].get(), workers);
      ASSERT_TRUE(exchange.Send(w, sums, 77).ok());
    }
    for (uint32_t w = 0; w < workers; ++w) {
      MergedSums merged;
      ASSERT_TRUE(exchange.Merge(w, Layout(), &merged).ok());
      const Call rates(engines[w].get(), Batch());
      ASSERT_TRUE(Ok(engines[w]->steps().ApplySums(Span<const TablePtr>(rates.tables.data(), 2), 0, merged,
                                                   rates.args.learning_rates)));
    }
    const Call call(whole.get(), all);
    ASSERT_TRUE(testing::KeepAndApply(&whole->steps(), call.batch_call(), call.args).ok());
  }
  Rows expected, found;
  AddRows(whole.get(), &expected);
  for (const auto& engine : engines) AddRows(engine.get(), &found);
  EXPECT_EQ(found, expected);
  EXPECT_GT(expected.size(), 20u);
  for (const auto& engine : engines) {  // schedules count alike everywhere
    for (const char* name : {"a", "b"}) {
      EXPECT_EQ(engine->tables().Find(name).value()->applies.load(),
                whole->tables().Find(name).value()->applies.load());
    }
  }
}

// The parts of two workers, one of which has an error, or is fine.
struct Pair {
  SumsExchange exchange{2};

  void Pack(size_t w, const Status& error, uint64_t signature = 77, uint64_t planned = 0) {
    const Owners owners{2};
    GradientSums sums;
    sums.planned = planned;
    sums.active = {1, 0, 1};
    sums.tables.resize(2);
    for (uint32_t t = 0; t < 2; ++t) {
      sums.tables[t].dim = kDims[t];
      for (Key key = 0; key < 5; ++key) {
        sums.tables[t].keys.push_back(key);
        sums.tables[t].owners.push_back(owners.Of(t, key, HashKey(key, 0)));
        sums.tables[t].sums.resize(sums.tables[t].sums.size() + kDims[t], static_cast<float>(key));
        sums.tables[t].idle_keys.push_back(100 + key);
        sums.tables[t].idle_owners.push_back(owners.Of(t, 100 + key, HashKey(100 + key, 0)));
        sums.tables[t].idle_features.push_back(1);
      }
    }
    EXPECT_TRUE(exchange.Send(w, sums, signature, error).ok());
  }
  Status Merge(size_t to, MergedSums* merged) { return exchange.Merge(to, Layout(), merged); }
};

// Defects: an error that the others do not see; a worker without a plan chooses owners by the hash, others by
// the stream, and a row gets two updates.
TEST(GradientSumsParts, WhatDoesNotSuitFailsAllWorkers) {
  const char* const plans = "worker 0 is number 5 of the pass, and that of worker 1 of 2 is ";
  const struct {
    Status error;
    uint64_t signature, planned;
    Code code;
    const char *says, *also;
  } cases[] = {
      {InvalidArgument("the gradient is bad"), 77, 5, Code::kInvalidArgument, "worker 1 of 2: ", "is bad"},
      {Status(), 78, 5, Code::kFailedPrecondition, "worker 1 of 2 sent the gradients of ", "another layer"},
      {Status(), 77, 0, Code::kFailedPrecondition, plans, "by new iterators"},
      {Status(), 77, 6, Code::kFailedPrecondition, plans, "by new iterators"}};
  for (const auto& one : cases) {
    Pair pair;
    MergedSums merged;
    pair.Pack(0, Status(), 77, 5);
    pair.Pack(1, one.error, one.signature, one.planned);
    for (size_t to = 0; to < 2; ++to) {
      EXPECT_TRUE(Fails(pair.Merge(to, &merged), one.code, one.says, one.also));
    }
    pair.Pack(1, Status(), 77, 5);
    EXPECT_TRUE(pair.Merge(0, &merged).ok());
  }
}

TEST(GradientSumsParts, PartsOfWrongLengthAreAnError) {
  Pair pair;
  pair.Pack(0, Status());
  pair.Pack(1, Status());
  MergedSums merged;
  ASSERT_TRUE(pair.Merge(0, &merged).ok());
  const auto [whole, splits] = pair.exchange.PartsOf(0);
  const size_t first = static_cast<size_t>(splits[0]);
  for (size_t cut = 0; cut < first; ++cut) {  // the first part ends early
    const Vector<int32_t> lengths{static_cast<int32_t>(cut)};
    EXPECT_EQ(MergeSums(Layout(), Span<const uint8_t>(whole.data(), cut),
                        Span<const int32_t>(lengths.data(), 1), &merged)
                  .code(),
              Code::kInternal)
        << cut;
  }
  for (int32_t wrong : {-1, splits[1] + 1, 1 << 30}) {
    const Vector<int32_t> lengths{splits[0], wrong};
    EXPECT_EQ(MergeSums(Layout(), whole, Span<const int32_t>(lengths.data(), 2), &merged).code(),
              Code::kInternal);
  }
  Bytes longer = whole;
  longer.push_back(0);
  const int32_t other = splits[1];
  for (int32_t length : {other, other + 1}) {  // behind the parts, and behind the gradients of the last
    const Vector<int32_t> lengths{splits[0], length};
    EXPECT_EQ(MergeSums(Layout(), longer, Span<const int32_t>(lengths.data(), 2), &merged).code(),
              Code::kInternal);
  }
}

// 1,000 keys are shared evenly by any number of workers.
TEST(GradientSumsParts, OwnersShareTheKeys) {
  for (uint32_t workers : {1u, 2u, 3u, 7u, 64u}) {
    std::vector<int> owned(workers);
    for (Key key = -5000; key < 5000; ++key) ++owned[Owners{workers}.Of(0, key, HashKey(key, 0))];
    EXPECT_LT(*std::max_element(owned.begin(), owned.end()), 10000 / static_cast<int>(workers) * 14 / 10 + 1);
  }
}

}  // namespace
}  // namespace het
