#include "het_tf/core/schema.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace het {
namespace {

using Json = nlohmann::json;

Json ToJsonObject(const TableSpec& spec) {
  return {
      {"name", spec.name},
      {"dim", spec.dim},
      {"optimizer", {{"name", spec.optimizer.name}, {"params", spec.optimizer.params}}},
      {"initializer",
       {{"name", spec.initializer.name}, {"a", spec.initializer.a}, {"b", spec.initializer.b}}},
      {"seed", spec.seed},
      {"l2", spec.l2},
      {"max_norm", spec.max_norm},
  };
}

Status CheckLimits(const TableLimits& limits) {
  if (limits.min_count_ttl == 0) return InvalidArgument("min_count_ttl is 0; it must be at least 1 second");
  if (limits.min_count > 0 && limits.ttl > 0 && limits.min_count_ttl >= limits.ttl) {
    return InvalidArgument("min_count_ttl is " + std::to_string(limits.min_count_ttl) + " and ttl " +
                           std::to_string(limits.ttl) +
                           ": every row would go by its ttl first; give min_count_ttl < ttl");
  }
  return Status();
}

Result<TableLimits> ParseLimits(const Json& json) {
  TableLimits limits;
  for (const auto& [field, value] : json.items()) {
    const int64_t given = value.is_number_integer() ? value.get<int64_t>() : -1;
    int64_t most = UINT32_MAX;
    if (field == "max_rows") most = int64_t{1} << 62;
    if (field == "min_count") most = TableLimits::kMaxCount;
    if (given < 0 || given > most) {
      return InvalidArgument(field + " is " + value.dump() + "; it must be an integer from 0 to " +
                             std::to_string(most));
    }
    const auto number = static_cast<uint64_t>(given);
    if (field == "max_rows") {
      limits.max_rows = number;
    } else if (field == "ttl") {
      limits.ttl = static_cast<uint32_t>(number);
    } else if (field == "min_count") {
      limits.min_count = static_cast<uint32_t>(number);
    } else if (field == "min_count_ttl") {
      limits.min_count_ttl = static_cast<uint32_t>(number);
    } else if (field == "since") {
      limits.since = static_cast<uint32_t>(number);
    } else {
      return InvalidArgument("table limits have the unknown field '" + field + "'");
    }
  }
  return limits;
}

}  // namespace

Result<Schema> TableSchema::Create(TableSpec spec) {
  auto bad = [&](const std::string& what) { return InvalidArgument("table '" + spec.name + "': " + what); };
  if (spec.name.empty()) return InvalidArgument("table name is empty; give every table a name");
  if (spec.dim == 0 || spec.dim > kMaxDim) {
    return bad("dim is " + std::to_string(spec.dim) + "; it must be from 1 to " + std::to_string(kMaxDim));
  }
  if (!(spec.l2 >= 0) || !std::isfinite(spec.l2)) {
    return bad("l2 is " + std::to_string(spec.l2) + "; it must be finite and >= 0");
  }
  if (!(spec.max_norm >= 0) || !std::isfinite(spec.max_norm)) {
    return bad("max_norm is " + std::to_string(spec.max_norm) + "; it must be finite and >= 0 (0: no limit)");
  }
  if (spec.limits) {
    const Status limits = CheckLimits(*spec.limits);
    if (!limits.ok()) return bad(limits.message());
  }
  auto optimizer = Optimizer::Create(spec.optimizer, spec.dim);
  if (!optimizer.ok()) return bad(optimizer.status().message());
  if (spec.max_norm > 0 && optimizer.value()->value_is_derived()) {
    return bad("max_norm does not go with optimizer '" + spec.optimizer.name +
               "', whose value is a function of its slots; use l2 instead");
  }
  auto initializer = Initializer::Create(spec.initializer, spec.seed, HashName(spec.name), spec.dim);
  if (!initializer.ok()) return bad(initializer.status().message());
  return Schema(new TableSchema(std::move(spec), std::move(optimizer.value()), initializer.value()));
}

TableSchema::TableSchema(TableSpec spec, std::unique_ptr<Optimizer> optimizer, Initializer initializer)
    : spec_(std::move(spec)),
      id_(HashName(spec_.name)),
      optimizer_(std::move(optimizer)),
      initializer_(initializer) {}

void TableSchema::Tick(float learning_rate, float* g, float* row, float* update) const {
  const size_t dim = spec_.dim;
  if (spec_.l2 > 0) {
    const float slope = static_cast<float>(2 * spec_.l2);
    for (size_t i = 0; i < dim; ++i) g[i] += slope * row[i];
  }
  optimizer_->Apply(learning_rate, g, row, update);
  if (spec_.max_norm > 0) {
    double squares = 0;
    for (size_t i = 0; i < dim; ++i) squares += static_cast<double>(row[i]) * row[i];
    if (squares <= spec_.max_norm * spec_.max_norm) return;
    const float scale = static_cast<float>(spec_.max_norm / std::sqrt(squares));
    for (size_t i = 0; i < dim; ++i) {
      const float limited = row[i] * scale;
      if (update != nullptr) update[i] += limited - row[i];
      row[i] = limited;
    }
  }
}

std::string TableSchema::ToJson() const { return ToJsonObject(spec_).dump(); }

std::string TableSchema::ToJson(const TableLimits& limits) const {
  Json json = ToJsonObject(spec_);
  json["limits"] = {{"ttl", limits.ttl},
                    {"max_rows", limits.max_rows},
                    {"min_count", limits.min_count},
                    {"min_count_ttl", limits.min_count_ttl},
                    {"since", limits.since}};
  return json.dump();
}

Result<TableSpec> ParseTableSpec(const std::string& text) {
  TableSpec spec;
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    for (const auto& [field, value] : json.items()) {
      if (field == "name") {
        spec.name = value.get<std::string>();
      } else if (field == "dim") {
        const int64_t dim = value.is_number_integer() ? value.get<int64_t>() : 0;
        if (dim < 1 || dim > TableSchema::kMaxDim) {
          return InvalidArgument("dim is " + value.dump() + "; it must be from 1 to " +
                                 std::to_string(TableSchema::kMaxDim));
        }
        spec.dim = static_cast<uint32_t>(dim);
      } else if (field == "optimizer") {
        spec.optimizer.name = value.at("name").get<std::string>();
        spec.optimizer.params = value.value("params", std::map<std::string, double>());
      } else if (field == "initializer") {
        spec.initializer.name = value.at("name").get<std::string>();
        spec.initializer.a = value.value("a", 0.0);
        spec.initializer.b = value.value("b", 0.0);
      } else if (field == "seed") {
        if (!value.is_number_unsigned()) {
          return InvalidArgument("seed is " + value.dump() + "; it must be an integer from 0 to 2^64 - 1");
        }
        spec.seed = value.get<uint64_t>();
      } else if (field == "l2") {
        spec.l2 = value.get<double>();
      } else if (field == "max_norm") {
        spec.max_norm = value.get<double>();
      } else if (field == "limits") {
        auto limits = ParseLimits(value);
        if (!limits.ok()) return limits.status();
        spec.limits = limits.value();
      } else {
        return InvalidArgument("table spec has the unknown field '" + field + "'");
      }
    }
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument(std::string("table spec is not valid JSON of a table: ") + error.what());
  }
  return spec;
}

}  // namespace het
