// An engine with tables, and short calls on them, for tests of caches on a device.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "het_tf/core/engine/engine.h"
#include "het_tf/ext/gpu/cc/device_backend.h"
#include "tests/testing/world/device_cache.h"

namespace het::testing {

TableOptions CacheOf(const std::string& device, size_t capacity, const Bound& pull_bound,
                     const Bound& push_bound);

TableSpec SpecOf(const std::string& name, uint32_t dim, const std::string& optimizer = "sgd");

// What an engine keeps on the device.
DeviceTables* DeviceOf(Engine* engine);

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

nlohmann::json CacheStats(Engine* engine, const std::string& table);

// Loads the library and makes an engine whose tables are in this process.
class DeviceEngine : public ::testing::Test {
 protected:
  DeviceEngine() : engine_("test", 1) {}
  void SetUp() override;
  void Create(const std::string& name, uint32_t dim, const TableOptions& options,
              const std::string& optimizer = "sgd");
  float Value(const std::string& table, Key id);

  Engine engine_;
};

}  // namespace het::testing
