// Ticks and merges of rows on a device against the core's, bit for bit.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "het_tf/core/row/schema.h"
#include "tests/cpp/testing/device/device_world.h"
#include "tests/cpp/testing/random.h"

namespace het::testing {
namespace {

struct Case {
  const char* name;
  int optimizer;
  std::vector<const char*> names;
  std::vector<double> params;
  double l2 = 0;
  double max_norm = 0;
};

std::vector<Case> Cases() {
  const std::vector<const char*> accumulator = {"initial_accumulator", "epsilon"};
  const std::vector<const char*> adam = {"beta_1", "beta_2", "epsilon"};
  const std::vector<const char*> ftrl = {"l1", "l2", "beta", "l2_shrinkage", "initial_accumulator"};
  return {
      {"sgd", HET_DEV_SGD, {}, {}},
      {"sgd", HET_DEV_SGD, {}, {}, 0.01, 0.7},
      {"momentum", HET_DEV_MOMENTUM, {"momentum", "nesterov"}, {0.9, 0}},
      {"momentum", HET_DEV_MOMENTUM, {"momentum", "nesterov"}, {0.8, 1}, 0.02, 0.9},
      {"rmsprop", HET_DEV_RMSPROP, {"rho", "epsilon"}, {0.9, 1e-7}},
      {"rmsprop", HET_DEV_RMSPROP, {"rho", "epsilon"}, {0.99, 1e-3}, 0.01, 0.5},
      {"adam", HET_DEV_ADAM, adam, {0.9, 0.999, 1e-7}},
      {"adam", HET_DEV_ADAM, adam, {0.5, 0.6, 1e-3}, 0.01, 0.5},
      {"adam", HET_DEV_ADAM, adam, {0, 0, 1e-3}},
      {"adagrad", HET_DEV_ADAGRAD, accumulator, {0.1, 1e-7}},
      {"adagrad", HET_DEV_ADAGRAD, accumulator, {0, 1e-3}, 0.01, 0.5},
      {"row_wise_adagrad", HET_DEV_ROW_WISE_ADAGRAD, accumulator, {0.1, 1e-7}},
      {"row_wise_adagrad", HET_DEV_ROW_WISE_ADAGRAD, accumulator, {0.1, 1e-7}, 0.01, 0.5},
      {"ftrl", HET_DEV_FTRL, ftrl, {0, 0, 0, 0, 0.1}},
      {"ftrl", HET_DEV_FTRL, ftrl, {0.1, 0.2, 1, 0.01, 0.1}, 0.01},
      {"ftrl", HET_DEV_FTRL, ftrl, {0, 0, 0, 0, 0}},
  };
}

class DeviceOptimizerTest : public DeviceWorld {
 protected:
  static constexpr int64_t kKeys = 5;

  void Make(const Case& c, uint32_t dim, bool keep_updates) {
    TableSpec spec;
    spec.name = "t";
    spec.dim = dim;
    spec.optimizer.name = c.name;
    for (size_t p = 0; p < c.names.size(); ++p) spec.optimizer.params[c.names[p]] = c.params[p];
    spec.l2 = c.l2;
    spec.max_norm = c.max_norm;
    schema_ = TableSchema::Create(spec).value();
    HetDevTableConfig config = SgdTable("t", 64, dim);
    config.optimizer = c.optimizer;
    config.row_floats = static_cast<uint32_t>(schema_->row_floats());
    for (size_t p = 0; p < c.params.size(); ++p) config.params[p] = c.params[p];
    config.l2 = c.l2;
    config.max_norm = c.max_norm;
    config.keep_updates = keep_updates ? 1 : 0;
    AddTable(config);
    NewStep();
    Keys keys;
    for (int64_t key = 0; key < kKeys; ++key) keys.push_back(key * 7 - 9);
    SetBatch({{keys}});
    keys_ = keys;
  }
  size_t floats() const { return schema_->row_floats(); }
  size_t dim() const { return schema_->dim(); }

  float Number() { return static_cast<float>(random_.Unit() * 2 - 1); }
  // A row as the store could have it: slots are never negative.
  std::vector<float> RandomRow() {
    std::vector<float> row(floats());
    schema_->optimizer().InitSlots(row.data());
    for (size_t i = 0; i < dim(); ++i) row[i] = Number();
    std::vector<float> g(dim());
    for (uint64_t ticks = random_.Below(3); ticks > 0; --ticks) {
      for (float& x : g) x = Number();
      schema_->Tick(0.1f, g.data(), row.data(), nullptr);
    }
    return row;
  }
  // Gives the device these rows with this base.
  void Put(const std::vector<std::vector<float>>& rows, int64_t base, bool admit) {
    std::vector<float> all;
    for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
    const std::vector<int64_t> bases(rows.size(), base);
    const std::vector<uint8_t> admits(rows.size(), admit);
    const HetDevAnswer answer = {0, rows.size(), keys_.data(), bases.data(), admits.data(), all.data()};
    HetDevExport victims;
    ASSERT_EQ(HetDevInstall(context_, call_, &batch_, &answer, 1, nullptr, &victims), HET_DEV_OK)
        << HetDevError();
    EXPECT_EQ(victims.n, 0u);
  }
  // One tick with one random gradient a key, on the device and on `rows` and `updates`.
  std::vector<Update> TickAll(float learning_rate, std::vector<std::vector<float>>* rows,
                              std::vector<std::vector<float>>* updates) {
    std::vector<float> gradients(keys_.size() * dim());
    for (float& x : gradients) x = Number();
    const size_t shift = random_.Below(2);  // gradients that begin at 4 bytes past a multiple of 16
    std::vector<float> shifted(shift, 0.0f);
    shifted.insert(shifted.end(), gradients.begin(), gradients.end());
    const DeviceArray on_device(context_, shifted.data(), shifted.size() * sizeof(float));
    features_[0].gradients = on_device.as<float>() + shift;
    uses_[0].learning_rate = learning_rate;
    HetDevWanted wanted;
    HetDevSummed summed;
    EXPECT_EQ(HetDevSum(context_, call_, &batch_, 1, nullptr, nullptr, &wanted, &summed), HET_DEV_OK)
        << HetDevError();
    EXPECT_EQ(wanted.n, 0u);
    EXPECT_EQ(summed.uniques, keys_.size());
    HetDevExport due;
    EXPECT_EQ(HetDevTick(context_, call_, &batch_, nullptr, &due), HET_DEV_OK) << HetDevError();
    for (size_t k = 0; k < keys_.size(); ++k) {
      float sum[kMostDim];
      for (size_t i = 0; i < dim(); ++i) sum[i] = 0.0f + gradients[k * dim() + i];
      schema_->Tick(learning_rate, sum, (*rows)[k].data(), (*updates)[k].data());
    }
    return Copied(due);
  }
  static void ExpectBits(const std::vector<float>& got, const std::vector<float>& expected,
                         const char* what) {
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(std::memcmp(&got[i], &expected[i], sizeof(float)), 0)
          << what << "[" << i << "] is " << got[i] << ", not " << expected[i];
    }
  }
  void ExpectRows(const std::vector<std::vector<float>>& rows, const std::vector<std::vector<float>>& updates,
                  uint32_t ticks) {
    for (size_t k = 0; k < keys_.size(); ++k) {
      const Row row = Inspect(keys_[k]);
      ASSERT_TRUE(row.state.found);
      EXPECT_EQ(row.state.ticks, ticks);
      ExpectBits(row.row, rows[k], "row");
      if (ticks > 0) ExpectBits(row.update, updates[k], "update");
    }
  }
  std::vector<std::vector<float>> RandomRows() {
    std::vector<std::vector<float>> rows;
    for (size_t k = 0; k < keys_.size(); ++k) rows.push_back(RandomRow());
    return rows;
  }
  std::vector<std::vector<float>> Zeros() {
    return std::vector<std::vector<float>>(keys_.size(), std::vector<float>(floats()));
  }

  static constexpr size_t kMostDim = 256;
  Random random_{11};
  Schema schema_;
  Keys keys_;
};

class EveryOptimizer : public DeviceOptimizerTest,
                       public ::testing::WithParamInterface<std::tuple<size_t, uint32_t>> {
 protected:
  void MakeIt(bool keep_updates) {
    Make(Cases()[std::get<0>(GetParam())], std::get<1>(GetParam()), keep_updates);
  }
};

TEST_P(EveryOptimizer, TicksAndComposesAsTheCore) {
  MakeIt(true);
  std::vector<std::vector<float>> rows = RandomRows(), updates = Zeros();
  Put(rows, 3, true);
  for (uint32_t t = 1; t <= 4; ++t) {
    EXPECT_TRUE(TickAll(t == 3 ? 0.0f : 0.1f, &rows, &updates).empty());
    ExpectRows(rows, updates, t);
  }
}

TEST_P(EveryOptimizer, PutsItsUpdateOnTopOfAFreshRow) {
  MakeIt(true);
  std::vector<std::vector<float>> rows = RandomRows(), updates = Zeros();
  Put(rows, 3, true);
  const uint32_t ticks = 3;
  for (uint32_t t = 0; t < ticks; ++t) TickAll(0.1f, &rows, &updates);
  rows = RandomRows();
  Put(rows, 8, true);
  for (size_t k = 0; k < rows.size(); ++k)
    schema_->optimizer().MergeInto(updates[k].data(), ticks, rows[k].data());
  ExpectRows(rows, updates, ticks);
  EXPECT_EQ(Inspect(keys_[0]).state.base, 8);
}

TEST_P(EveryOptimizer, GivesUpdatesAway) {
  MakeIt(true);
  std::vector<std::vector<float>> rows = RandomRows(), updates = Zeros();
  Put(rows, 3, true);
  uses_[0].push_bound = 1;
  EXPECT_TRUE(TickAll(0.1f, &rows, &updates).empty());
  const std::vector<Update> due = TickAll(0.2f, &rows, &updates);
  ASSERT_EQ(due.size(), keys_.size());
  std::set<uint64_t> keys;
  for (const Update& update : due) {
    if (!keys.empty()) {
      EXPECT_GT(static_cast<uint64_t>(update.key), *keys.rbegin()) << "in order of keys";
    }
    keys.insert(static_cast<uint64_t>(update.key));
    EXPECT_EQ(update.ticks, 2u);
    const size_t k = static_cast<size_t>((update.key + 9) / 7);
    ExpectBits(update.update, updates[k], "update");
  }
  ExpectRows(rows, updates, 0);
  EXPECT_EQ(Inspect(keys_[0]).state.base, 5);
  // The next update starts from nothing.
  updates = Zeros();
  EXPECT_TRUE(TickAll(0.3f, &rows, &updates).empty());
  ExpectRows(rows, updates, 1);
}

TEST_P(EveryOptimizer, GivesEveryTickAwayWhereNoUpdateIsKept) {
  MakeIt(false);
  std::vector<std::vector<float>> rows = RandomRows();
  Put(rows, 3, true);
  for (int t = 0; t < 2; ++t) {
    std::vector<std::vector<float>> updates = Zeros();
    const std::vector<Update> due = TickAll(t == 0 ? 0.1f : 0.0f, &rows, &updates);
    ASSERT_EQ(due.size(), keys_.size());
    for (const Update& update : due) {
      EXPECT_EQ(update.ticks, 1u);
      ExpectBits(update.update, updates[static_cast<size_t>((update.key + 9) / 7)], "update");
    }
    ExpectRows(rows, updates, 0);
  }
}

TEST_P(EveryOptimizer, TicksRowsOfTheCall) {
  MakeIt(true);
  std::vector<std::vector<float>> rows = RandomRows();
  Put(rows, 3, false);
  for (int t = 0; t < 2; ++t) {
    std::vector<std::vector<float>> updates = Zeros();
    const std::vector<Update> due = TickAll(0.1f, &rows, &updates);
    ASSERT_EQ(due.size(), keys_.size());
    for (const Update& update : due) {
      EXPECT_EQ(update.ticks, 1u);
      ExpectBits(update.update, updates[static_cast<size_t>((update.key + 9) / 7)], "update");
    }
  }
  EXPECT_FALSE(Has(keys_[0]));
  // Its rows hold the ticks.
  Lookup(0);
  const std::vector<float> values = RowsOf(0);
  for (size_t k = 0; k < keys_.size(); ++k) {
    ExpectBits(std::vector<float>(values.begin() + k * dim(), values.begin() + (k + 1) * dim()),
               std::vector<float>(rows[k].begin(), rows[k].begin() + dim()), "value");
  }
}

INSTANTIATE_TEST_SUITE_P(, EveryOptimizer,
                         ::testing::Combine(::testing::Range(size_t{0}, Cases().size()),
                                            ::testing::Values(1u, 3u, 4u, 7u, 16u, 33u, 128u)),
                         [](const auto& info) {
                           const size_t number = std::get<0>(info.param);
                           return std::string(Cases()[number].name) + "_" + std::to_string(number) + "_dim" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST_F(DeviceOptimizerTest, AdamGoesOnBeyondItsTable) {
  Make({"adam", HET_DEV_ADAM, {"beta_1", "beta_2", "epsilon"}, {0.9, 0.99999, 1e-7}}, 4, true);
  for (const float step : {65534.0f, 65535.0f, 65536.0f, 100000.0f, 1802000.0f, 2000000.0f}) {
    std::vector<std::vector<float>> rows = RandomRows(), updates = Zeros();
    for (auto& row : rows) row[3 * dim()] = step;
    HetDevResetCall(context_, call_);
    uint64_t discarded;
    ASSERT_EQ(HetDevForget(context_, tables_[0], HET_DEV_DROP, nullptr, nullptr, &discarded), HET_DEV_OK);
    Put(rows, 0, true);
    TickAll(0.1f, &rows, &updates);
    ExpectRows(rows, updates, 1);
  }
}

TEST_F(DeviceOptimizerTest, RefusesWhatTheCoreRefuses) {
  HetDevTableConfig config = SgdTable("users", 64, 4);
  auto refused = [&](const std::string& says) {
    HetDevTable* table = nullptr;
    EXPECT_EQ(HetDevCreateTable(context_, &config, &table), HET_DEV_INVALID);
    EXPECT_EQ(table, nullptr);
    EXPECT_NE(std::string(HetDevError()).find(says), std::string::npos) << HetDevError();
    EXPECT_NE(std::string(HetDevError()).find("users"), std::string::npos) << HetDevError();
  };
  config.optimizer = 7;
  refused("optimizer is 7");
  config.optimizer = HET_DEV_ADAM;
  config.params[0] = 1;
  refused("beta_1 is 1");
  config.params[0] = 0.9;
  config.params[1] = 0.9;
  refused("epsilon is 0");
  config.params[2] = 1e-7;
  refused("row_floats is 4; it must be 13");
  config.row_floats = 13;
  config.l2 = -1;
  refused("l2 is -1");
  config.l2 = 0;
  config.max_norm = -1;
  refused("max_norm is -1");
  config.optimizer = HET_DEV_FTRL;
  config.max_norm = 1;
  refused("max_norm is 1");
  config.max_norm = 0;
  config.optimizer = HET_DEV_MOMENTUM;
  config.params[1] = 0.5;
  refused("nesterov is 0.5; it must be 0 or 1");
}

}  // namespace
}  // namespace het::testing
