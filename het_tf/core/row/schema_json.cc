#include "het_tf/core/row/schema_json.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace het {
namespace {

using Json = nlohmann::json;

// Maximum nesting of an untrusted spec: error messages print it recursively.
constexpr int kDeepest = 8;

Result<TableLimits> ParseLimits(const Json& json) {
  TableLimits limits;
  const std::map<std::string, uint32_t*> small = {{"ttl", &limits.ttl},
                                                  {"min_count", &limits.min_count},
                                                  {"min_count_ttl", &limits.min_count_ttl},
                                                  {"since", &limits.since}};
  for (const auto& [field, value] : json.items()) {
    const auto number = small.find(field);
    const bool rows = field == "max_rows";
    if (number == small.end() && !rows)
      return InvalidArgument("table limits have the unknown field '" + field + "'");
    const int64_t most = rows ? int64_t{1} << 62 : field == "min_count" ? TableLimits::kMaxCount : UINT32_MAX;
    const int64_t given = value.is_number_integer() ? value.get<int64_t>() : -1;
    if (given < 0 || given > most) {
      return InvalidArgument(field + " is " + value.dump() + "; it must be an integer from 0 to " +
                             std::to_string(most));
    }
    if (rows) {
      limits.max_rows = static_cast<uint64_t>(given);
    } else {
      *number->second = static_cast<uint32_t>(given);
    }
  }
  return limits;
}

}  // namespace

Json SpecAsJson(const TableSpec& spec) {
  Json json = {
      {"name", spec.name},
      {"dim", spec.dim},
      {"optimizer", {{"name", spec.optimizer.name}, {"params", spec.optimizer.params}}},
      {"initializer",
       {{"name", spec.initializer.name}, {"a", spec.initializer.a}, {"b", spec.initializer.b}}},
      {"seed", spec.seed},
      {"l2", spec.l2},
      {"max_norm", spec.max_norm},
  };
  if (spec.stored != Stored::kFloat32) json["stored"] = StoredName(spec.stored);
  if (!spec.drawn_as.empty()) json["drawn_as"] = spec.drawn_as;
  return json;
}

Json LimitsAsJson(const TableLimits& limits) {
  return {{"ttl", limits.ttl},
          {"max_rows", limits.max_rows},
          {"min_count", limits.min_count},
          {"min_count_ttl", limits.min_count_ttl},
          {"since", limits.since}};
}

std::string TableSchema::ToJson() const { return SpecAsJson(spec_).dump(); }

std::string TableSchema::ToJson(const TableLimits& limits) const {
  Json json = SpecAsJson(spec_);
  json["limits"] = LimitsAsJson(limits);
  return json.dump();
}

std::string DifferentFields(const std::string& here, const std::string& wanted) {
  std::map<std::string, std::pair<Json, Json>> fields;  // by "/optimizer/name"; null: absent
  Json is = Json::parse(here);
  Json should = Json::parse(wanted);
  // A group of fields that one side lacks, such as "cache", counts as one difference.
  const auto name_groups = [&fields](Json* one, const Json& other, auto side) {
    for (auto it = one->begin(); it != one->end();) {
      const bool whole = it->is_object() && !it->empty() && !other.contains(it.key());
      if (whole) fields["/" + it.key()].*side = *it;
      it = whole ? one->erase(it) : std::next(it);
    }
  };
  name_groups(&is, should, &std::pair<Json, Json>::first);
  name_groups(&should, is, &std::pair<Json, Json>::second);
  is = is.flatten();
  should = should.flatten();
  for (const auto& [name, value] : is.items()) fields[name].first = value;
  for (const auto& [name, value] : should.items()) fields[name].second = value;
  std::string text;
  for (auto& [name, values] : fields) {
    if (values.first == values.second) continue;
    std::string path = name.substr(1);
    std::replace(path.begin(), path.end(), '/', '.');
    const auto shown = [](const Json& value, const char* none) {
      return value.is_null() ? none : value.dump();
    };
    text += (text.empty() ? "" : "; ") + path + " is " + shown(values.first, "not there") + ", and " +
            shown(values.second, "none") + " is wanted";
  }
  return text;
}

Result<TableSpec> ParseTableSpec(const std::string& text) {
  try {
    bool too_deep = false;
    const auto watch = [&](int depth, Json::parse_event_t, const Json&) {
      too_deep = too_deep || depth > kDeepest;
      return !too_deep;
    };
    const Json json = Json::parse(text, watch);
    if (too_deep) return InvalidArgument("table spec is not valid JSON of a table: it is nested too deeply");
    return SpecOfJson(json);
  } catch (const Json::exception& error) {
    return InvalidArgument(std::string("table spec is not valid JSON of a table: ") + error.what());
  }
}

Result<TableSpec> SpecOfJson(const Json& json) {
  TableSpec spec;
  for (const auto& [field, value] : json.items()) {
    if (field == "name") {
      spec.name = value.get<std::string>();
    } else if (field == "drawn_as") {
      spec.drawn_as = value.get<std::string>();
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
    } else if (field == "stored") {
      HET_ASSIGN_OR_RETURN(spec.stored, ParseStored(value.get<std::string>()));
    } else if (field == "limits") {
      HET_ASSIGN_OR_RETURN(spec.limits, ParseLimits(value));
    } else {
      return InvalidArgument("table spec has the unknown field '" + field + "'");
    }
  }
  return spec;
}

}  // namespace het
