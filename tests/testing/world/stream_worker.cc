#include "tests/testing/world/stream_worker.h"

#include <algorithm>
#include <cstdlib>

#include "tests/testing/keep_and_apply.h"

namespace het::testing {
namespace {

constexpr size_t kWindow = 8;
constexpr uint64_t kVariable = 5;

FeatureIds Feature(uint32_t table, const std::vector<int64_t>& ids) {
  return {table, Span<const int64_t>(ids.data(), ids.size()), {}};
}

// Calls fn(part, u, values of the key among its table's) for every key of a step; values have dim floats.
template <typename Fn>
void ForEachKey(TestStep* step, const std::vector<TablePtr>& tables, const KeysOfTables& keys, Fn fn) {
  for (auto& [where, part] : step->parts()) {
    for (uint32_t t = 0; t < tables.size(); ++t) {
      if (tables[t]->schema->id() != part.table) continue;
      for (size_t u = 0; u < part.keys.size(); ++u) {
        const auto at = std::find(keys[t].begin(), keys[t].end(), part.keys[u]) - keys[t].begin();
        fn(&part, u, t, static_cast<size_t>(at) * part.dim);
      }
    }
  }
}

}  // namespace

StreamWorker::StreamWorker(LocalService* service, std::unique_ptr<Transport> transport,
                           const ClientConfig& config, const CacheConfig& cache,
                           const std::vector<Schema>& schemas)
    : parts_("world", {nullptr, std::make_unique<LocalStore>(service), std::move(transport)}, config),
      steps_(&parts_, 1),
      caches_(&parts_),
      tables_(&parts_, &steps_, &caches_) {
  parts_.driver.Stop();
  TableOptions options;
  options.cache = cache;
  for (const Schema& schema : schemas) {
    if (!tables_.Create(schema->spec(), options).ok()) std::abort();
    found_.push_back(tables_.Find(schema->spec().name).value());
  }
}

KeysOfTables StreamWorker::KeysOf(const TestStep& step) const {
  KeysOfTables keys(found_.size());
  for (const auto& [where, part] : step.parts()) {
    for (uint32_t t = 0; t < found_.size(); ++t) {
      if (found_[t]->schema->id() != part.table) continue;
      keys[t].insert(keys[t].end(), part.keys.begin(), part.keys.end());
    }
  }
  return keys;
}

template <typename Fn>
auto StreamWorker::WithCall(const KeysOfTables& keys, Fn fn) {
  std::vector<FeatureIds> features;
  for (uint32_t t = 0; t < keys.size(); ++t) features.push_back(Feature(t, keys[t]));
  return fn(BatchCall{{found_.data(), found_.size()}, {features.data(), features.size()}, kLayer});
}

Status StreamWorker::Plan(const KeysOfTables& mine, const std::vector<KeysOfTables>* all, uint64_t place,
                          uint32_t me, bool summed) {
  const size_t tables = found_.size();
  if (all == nullptr) {
    return WithCall(mine, [&](const BatchCall& call) { return window().Plan(call, kWindow); });
  }
  KeysOfTables of_all(tables);
  KeysOfTables ends(tables);
  for (const KeysOfTables& one : *all) {
    for (size_t t = 0; t < tables; ++t) {
      of_all[t].insert(of_all[t].end(), one[t].begin(), one[t].end());
      ends[t].push_back(static_cast<int64_t>(of_all[t].size()));
    }
  }
  std::vector<FeatureIds> features;
  GlobalStep::Ids ids;
  for (uint32_t t = 0; t < tables; ++t) {
    features.push_back(Feature(t, of_all[t]));
    ids.ends.emplace_back(ends[t].data(), ends[t].size());
  }
  ids.features = {features.data(), features.size()};
  ids.place = place;
  ids.worker = me;
  ids.summed = summed;
  return WithCall(mine, [&](const BatchCall& call) { return window().Plan(call, kWindow, &ids); });
}

Status StreamWorker::Lookup(TestStep* step, bool training) {
  const KeysOfTables keys = KeysOf(*step);
  rows_.assign(found_.size(), {});
  std::vector<float*> out;
  for (size_t t = 0; t < found_.size(); ++t) {
    rows_[t].resize(keys[t].size() * found_[t]->schema->dim());
    out.push_back(rows_[t].data());
  }
  const Status status = WithCall(keys, [&](const BatchCall& call) {
    return steps_.Lookup(call, {out.data(), out.size()}, training ? &step->token : nullptr);
  });
  ForEachKey(step, found_, keys, [&](TestStep::Part* part, size_t u, uint32_t t, size_t at) {
    part->values[u] = rows_[t].data() + at;
  });
  return status;
}

template <typename Fn>
auto StreamWorker::WithGradients(TestStep* step, float learning_rate, bool active, Fn fn, float factor) {
  const KeysOfTables keys = KeysOf(*step);
  std::vector<std::vector<float>> gradients(found_.size());
  for (size_t t = 0; t < found_.size(); ++t) gradients[t].resize(keys[t].size() * found_[t]->schema->dim());
  ForEachKey(step, found_, keys, [&](TestStep::Part* part, size_t u, uint32_t t, size_t at) {
    for (size_t i = 0; i < part->dim; ++i) gradients[t][at + i] = part->sums[u * part->dim + i] / factor;
  });
  std::vector<const float*> of_features;
  for (const auto& one : gradients) of_features.push_back(one.data());
  const std::vector<float> rates(found_.size(), learning_rate);
  const std::vector<uint8_t> actives(found_.size(), active ? 1 : 0);
  ApplyArgs args;
  args.token = step->token;
  args.gradients = {of_features.data(), of_features.size()};
  args.learning_rates = {rates.data(), rates.size()};
  if (!active) args.active = {actives.data(), actives.size()};
  return WithCall(keys, [&](const BatchCall& call) { return fn(call, args); });
}

Status StreamWorker::Apply(TestStep* step, float learning_rate, bool active) {
  return WithGradients(step, learning_rate, active, [&](const BatchCall& call, const ApplyArgs& args) {
    return KeepAndApply(&steps_, call, args);
  });
}

Status StreamWorker::Keep(TestStep* step, uint32_t me, float factor, Tickets* tickets) {
  const std::vector<uint64_t> variables(found_.size(), kVariable);
  Tickets given(2 * KeptGradients::kSlots);
  const auto keep = [&](const BatchCall& call, const ApplyArgs& args) {
    return steps_.Keep(call, args, {variables.data(), variables.size()}, me, nullptr, given.data());
  };
  tickets->resize(given.size());
  HET_RETURN_IF_ERROR(WithGradients(step, 0, true, keep, factor));
  for (size_t i = 0; i < given.size(); ++i) (*tickets)[i] += factor * given[i];
  return Status();
}

KeptCall StreamWorker::CallOf(const Tickets& tickets, const std::vector<float>& rates) const {
  return {kVariable, found_, tickets, rates};
}

Status StreamWorker::ApplyKept(const Tickets& tickets, float learning_rate) {
  return steps_.ApplyKept(CallOf(tickets, std::vector<float>(found_.size(), learning_rate)));
}

Status StreamWorker::SumKept(const Tickets& tickets, uint32_t workers, GradientSums* sums,
                             SumsLayout* layout) {
  return steps_.SumKept(CallOf(tickets, std::vector<float>(found_.size())), workers, sums, layout);
}

Status StreamWorker::ApplySums(const SumsLayout& layout, const MergedSums& sums, float learning_rate) {
  const std::vector<float> rates(found_.size(), learning_rate);
  return steps_.ApplySums({found_.data(), found_.size()}, layout.layer, sums, {rates.data(), rates.size()});
}

}  // namespace het::testing
