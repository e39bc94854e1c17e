// Steps of an engine with any tables: a layer's features, as the kernels give them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "het_tf/core/engine/engine.h"
#include "tests/testing/keys.h"
#include "tests/testing/status.h"

namespace het::testing {

// With a cache in host memory of this capacity, both of whose bounds are `bound`.
TableOptions Cached(size_t capacity, const Bound& bound);

struct FeatureInput {
  std::string table;
  std::vector<Key> ids;
  std::optional<Key> padding_id = std::nullopt;
};

// One batch on one engine. Borrows its arguments.
class StepOf {
 public:
  StepOf(Engine* engine, const std::vector<FeatureInput>& inputs);

  Status Lookup(bool training, bool on_device = false);
  // Gradients are laid out like rows, for each feature.
  Status Apply(const std::vector<std::vector<float>>& gradients, float rate = 1, bool on_device = false);
  // Gradients that all equal `value`.
  std::vector<std::vector<float>> Gradients(float value) const;

  BatchCall call(bool on_device = false) const { return {tables_, features_, 0, {on_device, nullptr}}; }
  const std::vector<TablePtr>& tables() const { return tables_; }

  std::vector<std::vector<float>> rows;
  uint64_t token = 0;

 private:
  Engine* engine_;
  std::vector<FeatureInput> inputs_;
  std::vector<TablePtr> tables_;
  std::vector<FeatureIds> features_;
};

Status Train(Engine* engine, const std::vector<FeatureInput>& inputs, float gradient = -1);

std::vector<float> Values(Engine* engine, const std::string& table, const std::vector<Key>& ids);

}  // namespace het::testing
