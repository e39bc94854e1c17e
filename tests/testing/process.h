// A training process with one table: an engine as TensorFlow's step uses it.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "het_tf/core/engine/engine.h"
#include "het_tf/core/store/local_store.h"
#include "het_tf/core/store/local_transport.h"
#include "het_tf/ext/streams/cc/window.h"
#include "tests/testing/keep_and_apply.h"
#include "tests/testing/keys.h"
#include "tests/testing/status.h"

namespace het::testing {

// The ids of one worker's step, with possible duplicates, and a gradient for each.
struct Batch {
  std::vector<int64_t> ids;
  std::vector<float> gradients;

  void Append(const Batch& other) {
    ids.insert(ids.end(), other.ids.begin(), other.ids.end());
    gradients.insert(gradients.end(), other.gradients.begin(), other.gradients.end());
  }
};

class Process {
 public:
  static constexpr uint32_t kDim = 3;

  // The reference: its table "t" is in its own memory and has no cache.
  explicit Process(const TableSpec& spec) : Process(std::make_shared<Engine>("one"), spec, {}) {}
  // A worker of the store.
  Process(const TableSpec& spec, LocalService* service, const CacheConfig& cache)
      : Process(spec, service, cache, std::make_unique<LocalTransport>(service)) {}
  Process(const TableSpec& spec, LocalService* service, const CacheConfig& cache,
          std::unique_ptr<Transport> transport)
      : Process(std::make_shared<Engine>("worker", 1, std::make_unique<LocalStore>(service),
                                         std::move(transport), ClientConfig()),
                spec, {cache}) {}
  Process(std::shared_ptr<Engine> engine, const TableSpec& spec, const TableOptions& options)
      : engine_(std::move(engine)) {
    Create(spec, options);
  }

  Engine& engine() { return *engine_; }
  const TablePtr& table() const { return table_; }
  uint64_t token() const { return token_; }

  // Calls fn(call) for the lookup or the gradient of these ids.
  template <typename Fn>
  auto WithCall(const std::vector<int64_t>& ids, Fn fn) {
    const FeatureIds feature{0, ids, {}};
    return fn(BatchCall{{&table_, 1}, {&feature, 1}, kLayer});
  }
  // A training lookup: one row of kDim floats for each id. Apply then takes the gradients of the same ids.
  Status TryLookup(const std::vector<int64_t>& ids, std::vector<float>* rows) {
    rows->resize(ids.size() * kDim);
    float* const out[] = {rows->data()};
    return WithCall(ids, [&](const BatchCall& call) {
      return engine_->steps().Lookup(call, {out, 1}, &token_);
    });
  }
  std::vector<float> Lookup(const std::vector<int64_t>& ids) {
    std::vector<float> rows;
    EXPECT_TRUE(Ok(TryLookup(ids, &rows)));
    return rows;
  }
  // Announces a lookup of these ids, at most 8 of which wait. May run during another thread's step.
  void Plan(const std::vector<int64_t>& ids) {
    EXPECT_TRUE(Ok(WithCall(
        ids, [&](const BatchCall& call) { return Window::Of(engine_->lookahead()).Plan(call, 8); })));
  }
  // Passes the gradients, for the token of the last lookup.
  template <typename Fn>
  auto WithGradients(const Batch& batch, float learning_rate, Fn fn) {
    const float* const gradients[] = {batch.gradients.data()};
    ApplyArgs args;
    args.token = token_;
    args.gradients = {gradients, 1};
    args.learning_rates = {&learning_rate, 1};
    return WithCall(batch.ids, [&](const BatchCall& call) { return fn(call, args); });
  }
  Status TryApply(const Batch& batch, float learning_rate) {
    return WithGradients(batch, learning_rate, [&](const BatchCall& call, const ApplyArgs& args) {
      return KeepAndApply(&engine_->steps(), call, args);
    });
  }
  void Apply(const Batch& batch, float learning_rate) { EXPECT_TRUE(Ok(TryApply(batch, learning_rate))); }
  // One step, which adds 1 to each id's row if the table learns with SGD.
  Status Count(const std::vector<int64_t>& ids) {
    std::vector<float> rows;
    HET_RETURN_IF_ERROR(TryLookup(ids, &rows));
    return TryApply({ids, std::vector<float>(rows.size(), -1)}, 1);
  }
  // The first float of a row, by an inference; -1 after an error.
  float Value(int64_t id) {
    float row[kDim];
    float* const out[] = {row};
    const Status status = WithCall({id}, [&](const BatchCall& call) {
      return engine_->steps().Lookup(call, {out, 1}, nullptr);
    });
    EXPECT_TRUE(status.ok()) << status.message();
    return status.ok() ? row[0] : -1;
  }
  // Keeps the gradients, whose tickets are added to *tickets: [KeptGradients::kSlots, 2].
  Status TryKeep(const Batch& batch, std::vector<float>* tickets, uint32_t worker = 0, float factor = 1) {
    std::vector<float> given(2 * KeptGradients::kSlots);
    const uint64_t variable = kVariable;
    const Status status = WithGradients(batch, 0, [&](const BatchCall& call, const ApplyArgs& args) {
      return engine_->steps().Keep(call, args, {&variable, 1}, worker, nullptr, given.data());
    });
    tickets->resize(given.size());
    for (size_t i = 0; i < given.size(); ++i) (*tickets)[i] += factor * given[i];
    return status;
  }
  // fn(call): ApplyKept, or its first half.
  template <typename Fn>
  auto WithTickets(const std::vector<float>& tickets, float learning_rate, Fn fn) {
    return fn(KeptCall{kVariable, {&table_, 1}, tickets, {&learning_rate, 1}});
  }
  Status TryApplyKept(const std::vector<float>& tickets, float learning_rate) {
    return WithTickets(tickets, learning_rate,
                       [&](const KeptCall& call) { return engine_->steps().ApplyKept(call); });
  }
  // Drops the table, and makes it again.
  void Recreate() {
    const TablePtr before = table_;
    EXPECT_TRUE(engine_->tables().Drop("t").ok());
    Create(before->schema->spec(), before->options);
  }
  // Returns key -> clock and row, slots included.
  std::map<Key, std::pair<Clock, std::vector<float>>> Rows() {
    const TableRows all = engine_->tables().Scan("t").value();
    const size_t floats = table_->schema->row_floats();
    std::map<Key, std::pair<Clock, std::vector<float>>> rows;
    for (size_t i = 0; i < all.keys.size(); ++i) {
      const float* row = all.rows.data() + i * floats;
      rows[all.keys[i]] = {all.clocks[i], std::vector<float>(row, row + floats)};
    }
    return rows;
  }

  static constexpr uint64_t kLayer = 1;
  static constexpr uint64_t kVariable = 9;

 private:
  void Create(const TableSpec& spec, const TableOptions& options) {
    const Status status = engine_->tables().Create(spec, options);
    if (!status.ok()) std::abort();
    table_ = engine_->tables().Find("t").value();
  }

  std::shared_ptr<Engine> engine_;
  TablePtr table_;
  uint64_t token_ = 0;
};

}  // namespace het::testing
