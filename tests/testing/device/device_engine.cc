#include "tests/testing/device/device_engine.h"

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "het_tf/core/base/memory_edge.h"
#include "tests/testing/keep_and_apply.h"
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

StepOf::StepOf(Engine* engine, const std::vector<FeatureInput>& inputs) : engine_(engine), inputs_(inputs) {
  std::map<std::string, uint32_t> number;
  for (const FeatureInput& input : inputs_) {
    if (number.count(input.table) == 0) {
      number[input.table] = static_cast<uint32_t>(tables_.size());
      tables_.push_back(engine->tables().Find(input.table).value());
    }
    const uint32_t table = number[input.table];
    features_.push_back({table, input.ids, input.padding_id});
    rows.emplace_back(input.ids.size() * tables_[table]->schema->dim());
  }
}

Status StepOf::Lookup(bool training, bool on_device) {
  std::vector<float*> out;
  for (auto& of_feature : rows) out.push_back(of_feature.data());
  uint64_t* const wanted = training ? &token : nullptr;
  return AtMemoryEdge([&] { return engine_->steps().Lookup(call(on_device), out, wanted); });
}

Status StepOf::Apply(const std::vector<std::vector<float>>& gradients, float rate, bool on_device) {
  std::vector<const float*> given;
  for (const auto& of_feature : gradients) given.push_back(of_feature.data());
  const std::vector<float> rates(tables_.size(), rate);
  ApplyArgs args;
  args.token = token;
  args.gradients = given;
  args.learning_rates = rates;
  return AtMemoryEdge([&] { return KeepAndApply(&engine_->steps(), call(on_device), args); });
}

std::vector<std::vector<float>> StepOf::Gradients(float value) const {
  std::vector<std::vector<float>> all;
  for (const auto& of_feature : rows) all.emplace_back(of_feature.size(), value);
  return all;
}

Status Train(Engine* engine, const std::vector<FeatureInput>& inputs, float gradient) {
  StepOf step(engine, inputs);
  HET_RETURN_IF_ERROR(step.Lookup(true));
  return step.Apply(step.Gradients(gradient));
}

std::vector<float> Values(Engine* engine, const std::string& table, const std::vector<Key>& ids) {
  std::vector<float> values(ids.size() * engine->tables().Find(table).value()->schema->dim(), -12345);
  const Status status = engine->tables().Read(table, ids, values.data());
  return status.ok() ? values : std::vector<float>();
}

nlohmann::json CacheStats(Engine* engine, const std::string& table) {
  const auto stats = engine->tables().Stats(table);
  return stats.ok() ? nlohmann::json::parse(ToJson(stats.value()))["cache"]
                    : nlohmann::json{{"error", stats.status().message()}};
}

void DeviceEngine::SetUp() {
  const Status loaded = DeviceLibrary::Load(DeviceLibraryPath(), 0);
  ASSERT_TRUE(loaded.ok()) << loaded.message();
}

void DeviceEngine::Create(const std::string& name, uint32_t dim, const TableOptions& options,
                          const std::string& optimizer) {
  const Status created = engine_.tables().Create(SpecOf(name, dim, optimizer), options);
  ASSERT_TRUE(created.ok()) << created.message();
}

float DeviceEngine::Value(const std::string& table, Key id) {
  const std::vector<float> values = Values(&engine_, table, {id});
  return values.empty() ? -99999.0f : values[0];
}

}  // namespace het::testing
