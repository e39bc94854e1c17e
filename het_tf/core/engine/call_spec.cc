#include "het_tf/core/engine/call_spec.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "het_tf/core/row/schema_json.h"

namespace het {

Result<std::unique_ptr<CallSpec>> CallSpec::Create(const std::string& specs) {
  auto call = std::make_unique<CallSpec>();
  HET_RETURN_IF_ERROR(call->Parse(specs));
  return call;
}

Result<std::unique_ptr<CallSpec>> CallSpec::Create(const std::vector<std::string>& tables,
                                                   const std::string& specs) {
  HET_ASSIGN_OR_RETURN(std::unique_ptr<CallSpec> call, Create(specs));
  if (tables.size() != call->features_.size()) {
    return InvalidArgument("attribute tables names " + std::to_string(tables.size()) +
                           " tables, one a feature, but specs has " + std::to_string(call->features_.size()) +
                           " features");
  }
  for (size_t f = 0; f < call->features_.size(); ++f) {
    const std::string& named = call->tables_[call->features_[f].table];
    if (tables[f] != named) {
      return InvalidArgument("attribute tables says '" + tables[f] + "' for feature " + std::to_string(f) +
                             ", specs says '" + named + "'");
    }
  }
  return call;
}

Status CallSpec::Parse(const std::string& text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    name_space_ = json.value("namespace", std::string());
    for (const nlohmann::json& table : json.at("tables")) {
      HET_ASSIGN_OR_RETURN(const TableSpec spec, SpecOfJson(table));
      HET_ASSIGN_OR_RETURN(Schema schema, TableSchema::Create(spec));
      tables_.push_back(spec.name);
      specs_.push_back(schema->ToJson());
      schemas_.push_back(std::move(schema));
    }
    variables_ = json.value("variables", std::vector<uint64_t>(tables_.size()));
    if (variables_.size() != tables_.size()) {
      return InvalidArgument("specs names " + std::to_string(variables_.size()) + " variables for " +
                             std::to_string(tables_.size()) + " tables");
    }
    ticket_rows_ = KeptGradients::kSlots * std::set<uint64_t>(variables_.begin(), variables_.end()).size();
    std::string layout = name_space_ + "\n";
    for (const nlohmann::json& feature : json.at("features")) {
      Feature parsed;
      const nlohmann::json padding_id = feature.value("padding_id", nlohmann::json());
      if (!feature.at("table").is_number_integer() ||
          !(padding_id.is_null() || padding_id.is_number_integer())) {
        return InvalidArgument("specs: a feature's table and padding_id are integers; it is " +
                               feature.dump());
      }
      parsed.table = feature.at("table").get<uint32_t>();
      if (parsed.table >= tables_.size()) {
        return InvalidArgument("specs: a feature names table " + std::to_string(parsed.table) + " of " +
                               std::to_string(tables_.size()));
      }
      if (!padding_id.is_null()) parsed.padding_id = padding_id.get<Key>();
      parsed.name = feature.value("name", std::to_string(features_.size()));
      features_.push_back(parsed);
      layout += std::to_string(parsed.table) + " " + padding_id.dump() + "\n";
    }
    signature_ = HashName(layout + json.at("tables").dump());
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument(std::string("specs is not the JSON of a lookup: ") + error.what());
  }
  return Status();
}

Status CallSpec::CheckTable(size_t index, const Table& table) const {
  const std::string here = table.schema->ToJson();
  if (here == specs_[index]) return Status();
  return FailedPrecondition("table '" + tables_[index] +
                            "' is not the one this graph was made for\n  exists: " + here +
                            "\n  wanted: " + specs_[index] +
                            "\nCall het_tf.reset() and build the model again, or load it in another process");
}

Result<CallSpec::Resolved> CallSpec::Resolve() {
  HET_ASSIGN_OR_RETURN(auto found, GetEngine(name_space_));
  std::shared_ptr<Engine> engine = std::move(found);
  const uint64_t generation = engine->tables().generation();
  std::lock_guard<std::mutex> lock(mutex_);
  // Compares engines by owner, without touching the count, so that a dead engine is not taken for this one.
  const bool same = !engine_.owner_before(engine) && !engine.owner_before(engine_);
  if (resolved_ != nullptr && same && generation_ == generation)
    return Resolved{std::move(engine), resolved_};
  auto tables = std::make_shared<std::vector<TablePtr>>();
  for (size_t t = 0; t < tables_.size(); ++t) {
    auto table = engine->tables().Find(tables_[t]);
    if (!table.ok()) {
      return FailedPrecondition(
          "het_tf: " + table.status().message() +
          ". A lookup never makes a table: its rows would be initial ones, not trained ones");
    }
    HET_RETURN_IF_ERROR(CheckTable(t, *table.value()));
    tables->push_back(table.value());
  }
  engine_ = engine;
  generation_ = generation;
  resolved_ = tables;
  return Resolved{std::move(engine), std::move(tables)};
}

std::vector<FeatureIds> CallSpec::FeaturesOf(const int64_t* const* ids, const size_t* counts) const {
  std::vector<FeatureIds> found;
  for (size_t f = 0; f < features_.size(); ++f) {
    found.push_back({features_[f].table, {ids[f], counts[f]}, features_[f].padding_id});
  }
  return found;
}

Status CheckIds(const CallSpec& spec, Span<const FeatureIds> features) {
  constexpr Key kNaN = std::numeric_limits<Key>::min();
  for (size_t f = 0; f < features.size(); ++f) {
    const Span<const Key> ids = features[f].ids;
    const auto count = std::count(ids.begin(), ids.end(), kNaN);
    if (count == 0 || features[f].padding_id == kNaN) continue;
    return InvalidArgument(
        "feature '" + spec.features()[f].name + "': " + std::to_string(count) + " of " +
        std::to_string(ids.size()) +
        " ids are -2^63, which is what NaN becomes as an integer; leave these samples out, "
        "or give what is missing an id of its own before ids are made integers");
  }
  return Status();
}

}  // namespace het
