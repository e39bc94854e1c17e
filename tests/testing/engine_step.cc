#include "tests/testing/engine_step.h"

#include <map>

#include "het_tf/core/base/memory_edge.h"
#include "tests/testing/keep_and_apply.h"

namespace het::testing {

TableOptions Cached(size_t capacity, const Bound& bound) {
  TableOptions options;
  options.cache = CacheConfig();
  options.cache->capacity = capacity;
  options.cache->pull_bound = options.cache->push_bound = bound;
  return options;
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

}  // namespace het::testing
