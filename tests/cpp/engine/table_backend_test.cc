// Backends without an engine: each one's use of a step's plan.
#include "het_tf/core/engine/table_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "het_tf/core/engine/cached_backend.h"
#include "het_tf/core/engine/direct_backend.h"
#include "het_tf/core/store/local_store.h"
#include "het_tf/core/store/local_transport.h"

namespace het {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint32_t kPartitions = 4;

// One table with rows of 2 floats that start as ones, served by either backend, and one step on it.
class TableBackendTest : public ::testing::TestWithParam<bool> {
 protected:
  TableBackendTest() {
    TableSpec spec;
    spec.name = "t";
    spec.dim = 2;
    spec.optimizer.name = "sgd";
    spec.initializer = {"constant", 1, 0};
    table_ = std::make_shared<Table>();
    table_->schema = TableSchema::Create(spec).value();
    if (GetParam()) table_->options.cache = CacheConfig();
    if (GetParam()) {
      backend_ = std::make_unique<CachedBackend>(&driver_);
    } else {
      backend_ = std::make_unique<DirectBackend>(&service_);
    }
  }
  void Add() {
    ASSERT_TRUE(store_.CreateTable(table_->schema).ok());
    ASSERT_TRUE(backend_->Add(table_->schema, table_->options).ok());
  }
  size_t Rows() { return store_.CountRows(*table_->schema).value(); }
  Status Lookup() {
    step_.Scatter(call_, transport_.id(0), &pool_);
    step_.PrepareRows();
    step_.PrepareValues(call_);
    float* const out[] = {rows_};
    return backend_->Lookup(&step_call_, Span<float* const>(out, 1));
  }
  void Sum() {
    const float* const gradients[] = {gradients_};
    ApplyArgs args;
    args.gradients = Span<const float* const>(gradients, 1);
    ASSERT_TRUE(step_.FindActive(call_, args));
    ASSERT_TRUE(step_.SumGradients(call_, args, &pool_).ok());
  }
  Status Tick() {
    const float rate = 1;
    ApplyArgs args;
    args.learning_rates = Span<const float>(&rate, 1);
    return backend_->Tick(&step_call_, args);
  }

  LocalService service_{kPartitions, 3};
  LocalStore store_{&service_};
  LocalTransport transport_{&service_};
  StepStore steps_;
  ComingSteps coming_{&steps_};
  ClientDriver driver_{&transport_, ClientConfig(), /*remote=*/false, &coming_};
  std::unique_ptr<TableBackend> backend_;
  TablePtr table_;

  const int64_t ids_[3] = {7, 9, 7};
  const float gradients_[6] = {1, 2, 10, 20, 3, 4};
  float rows_[6] = {};
  const FeatureIds feature_{0, Span<const int64_t>(ids_, 3), {}};
  const BatchCall call_{Span<const TablePtr>(&table_, 1), Span<const FeatureIds>(&feature_, 1)};
  ThreadPool pool_{1};
  Step step_;
  StepCall step_call_{call_, 1, &pool_, &step_};
};

INSTANTIATE_TEST_SUITE_P(Backends, TableBackendTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "cached" : "direct"; });

TEST_P(TableBackendTest, ServesItsOwnTablesAlone) {
  TableOptions other;
  if (!GetParam()) other.cache = CacheConfig();
  EXPECT_TRUE(backend_->Serves(table_->options));
  EXPECT_FALSE(backend_->Serves(other));
}

TEST_P(TableBackendTest, AStepReadsAndTicksEachKeyOnce) {
  Add();
  ASSERT_TRUE(Lookup().ok());
  EXPECT_THAT(rows_, ElementsAre(1, 1, 1, 1, 1, 1));
  Sum();
  ASSERT_TRUE(backend_->Prepare(&step_call_).ok());
  ASSERT_TRUE(Tick().ok());
  ASSERT_TRUE(backend_->Flush().ok());
  EXPECT_EQ(Rows(), 2u);
  ASSERT_TRUE(Lookup().ok());
  EXPECT_THAT(rows_, ElementsAre(-3, -5, -9, -19, -3, -5));
}

TEST_P(TableBackendTest, WhatWasPreparedIsUndone) {
  Add();
  ASSERT_TRUE(Lookup().ok());
  Sum();
  ASSERT_TRUE(backend_->Prepare(&step_call_).ok());
  backend_->Undo(&step_call_);
  EXPECT_EQ(Rows(), 0u);
}

TEST_P(TableBackendTest, ATableThatIsGoneIsNamed) {
  EXPECT_THAT(Lookup().message(), HasSubstr("table 't' was dropped"));
}

}  // namespace
}  // namespace het
