// An engine with tables, and short calls on them, for tests of caches on a device.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "het_tf/ext/gpu/cc/device_backend.h"
#include "tests/testing/engine_step.h"
#include "tests/testing/world/device_cache.h"

namespace het::testing {

TableOptions CacheOf(const std::string& device, size_t capacity, const Bound& pull_bound,
                     const Bound& push_bound);

TableSpec SpecOf(const std::string& name, uint32_t dim, const std::string& optimizer = "sgd");

// What an engine keeps on the device.
DeviceTables* DeviceOf(Engine* engine);

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
