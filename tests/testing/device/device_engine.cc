#include "tests/testing/device/device_engine.h"

#include <vector>

#include "tests/testing/optimizer_of.h"
#include "tests/testing/table_specs.h"

namespace het::testing {
namespace {

[[maybe_unused]] const bool device_backends = AddDeviceBackends();

}  // namespace

TableOptions CacheOf(const std::string& device, size_t capacity, const Bound& pull_bound,
                     const Bound& push_bound) {
  TableOptions options;
  if (device.empty()) return options;
  options.cache = CacheConfig();
  options.cache->on_device = device == "gpu";
  options.cache->checks = Checks::kAsked;
  options.cache->capacity = capacity;
  options.cache->pull_bound = pull_bound;
  options.cache->push_bound = push_bound;
  return options;
}

TableSpec SpecOf(const std::string& name, uint32_t dim, const std::string& optimizer) {
  return NewSpec(name, dim, OptimizerOf(optimizer), {"zeros", 0, 0});
}

DeviceTables* DeviceOf(Engine* engine) {
  return static_cast<DeviceBackend&>(engine->backends().Of(CacheOf("gpu", 1, 0, 1))).tables();
}

nlohmann::json CacheStats(Engine* engine, const std::string& table) {
  const auto stats = engine->tables().Stats(table);
  return stats.ok() ? nlohmann::json::parse(ToJson(stats.value()))["cache"]
                    : nlohmann::json{{"error", stats.status().message()}};
}

void DeviceEngine::SetUp() { ASSERT_TRUE(Ok(DeviceLibrary::Load(DeviceLibraryPath(), 0))); }

void DeviceEngine::Create(const std::string& name, uint32_t dim, const TableOptions& options,
                          const std::string& optimizer) {
  ASSERT_TRUE(Ok(engine_.tables().Create(SpecOf(name, dim, optimizer), options)));
}

float DeviceEngine::Value(const std::string& table, Key id) {
  const std::vector<float> values = Values(&engine_, table, {id});
  return values.empty() ? -99999.0f : values[0];
}

}  // namespace het::testing
