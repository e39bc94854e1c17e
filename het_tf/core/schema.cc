#include "het_tf/core/schema.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace het {

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

std::string TableSchema::ToJson() const {
  nlohmann::json json = {
      {"name", spec_.name},
      {"dim", spec_.dim},
      {"optimizer", {{"name", spec_.optimizer.name}, {"params", spec_.optimizer.params}}},
      {"initializer",
       {{"name", spec_.initializer.name}, {"a", spec_.initializer.a}, {"b", spec_.initializer.b}}},
      {"seed", spec_.seed},
      {"l2", spec_.l2},
      {"max_norm", spec_.max_norm},
  };
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
