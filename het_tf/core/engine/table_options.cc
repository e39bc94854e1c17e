#include "het_tf/core/engine/table_options.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "het_tf/core/cache/eviction_policy.h"

namespace het {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMost = int64_t{1} << 62;

Status IntegerWanted(const char* name, const Json& value, const char* or_null) {
  return InvalidArgument(std::string(name) + " is " + value.dump() + "; it must be an integer >= 0" +
                         or_null);
}

// --- one kind of value each: into the field, or InvalidArgument

template <typename T, T CacheConfig::*field, int64_t most = kMost>
Status SetCount(const char* name, const Json& value, CacheConfig* cache) {
  const int64_t number = value.is_number_integer() ? value.get<int64_t>() : -1;
  if (number < 0 || number > kMost) return IntegerWanted(name, value, "");
  cache->*field = static_cast<T>(std::min(number, most));
  return Status();
}

// null: unbounded.
template <Bound CacheConfig::*field>
Status SetBound(const char* name, const Json& value, CacheConfig* cache) {
  const int64_t number = value.is_number_integer() ? value.get<int64_t>() : -1;
  if (!value.is_null() && (number < 0 || number > kMost)) {
    return IntegerWanted(name, value, ", or null for unbounded");
  }
  cache->*field = Bound(value.is_null() ? kUnbounded : number);
  return Status();
}

// A word, which CheckTogether looks at; what is none is shown as it is.
template <std::string CacheConfig::*field>
Status SetWord(const char*, const Json& value, CacheConfig* cache) {
  cache->*field = value.is_string() ? value.get<std::string>() : value.dump();
  return Status();
}

Status SetWire(const char*, const Json& value, CacheConfig* cache) {
  const auto wire = ParseRowFormat(value.is_string() ? value.get<std::string>() : value.dump());
  if (!wire.ok()) return InvalidArgument("cache option " + wire.status().message());
  cache->wire = wire.value();
  return Status();
}

// null: unbounded.
Status SetStaleness(const char* name, const Json& value, CacheConfig* cache) {
  CacheConfig bound;
  HET_RETURN_IF_ERROR(SetBound<&CacheConfig::pull_bound>(name, value, &bound));
  cache->staleness = bound.pull_bound.most;
  return Status();
}

Status SetWorkers(const char* name, const Json& value, CacheConfig* cache) {
  const int64_t number = value.is_number_integer() ? value.get<int64_t>() : 0;
  if (number < 1 || number > UINT32_MAX) {
    return InvalidArgument(std::string(name) + " is " + value.dump() + "; it must be an integer >= 1");
  }
  cache->workers = static_cast<uint32_t>(number);
  return Status();
}

struct Field {
  const char* name;
  Status (*set)(const char* name, const Json& value, CacheConfig* cache);
};
constexpr Field kFields[] = {
    {"capacity", SetCount<size_t, &CacheConfig::capacity>},
    {"policy", SetWord<&CacheConfig::policy>},
    {"admit_after", SetCount<uint32_t, &CacheConfig::admit_after, 255>},
    {"pull_bound", SetBound<&CacheConfig::pull_bound>},
    {"push_bound", SetBound<&CacheConfig::push_bound>},
    {"write_back_rows", SetCount<size_t, &CacheConfig::write_back_rows>},
    {"wire", SetWire},
    {"checks", SetWord<&CacheConfig::checks>},
    {"staleness", SetStaleness},
    {"workers", SetWorkers},
    {"device", SetWord<&CacheConfig::device>},
};

// Words that are none, and fields that do not go with each other.
Status CheckTogether(const CacheConfig& cache) {
  HET_RETURN_IF_ERROR(CheckPolicyName(cache.policy));
  HET_RETURN_IF_ERROR(CheckChecksName(cache.checks));
  if (cache.device != "cpu" && cache.device != "gpu") {
    return InvalidArgument("cache option device is '" + cache.device + "'; it must be \"cpu\" or \"gpu\"");
  }
  if (!cache.on_device()) return Status();
  if (cache.capacity == 0) {
    return InvalidArgument(
        "cache options have capacity 0 and device \"gpu\"; a cache in GPU memory has at least 1 row. Give "
        "capacity, or device \"cpu\"");
  }
  if (cache.wire != RowFormat::kFloat32) {
    return InvalidArgument(std::string("cache options have wire \"") + RowFormatName(cache.wire) +
                           "\" and device \"gpu\"; rows of a cache in GPU memory travel as float32. Leave "
                           "wire out, or give device \"cpu\"");
  }
  if (cache.checks == "told") {
    return InvalidArgument(
        "cache options have checks \"told\" and device \"gpu\"; rows in GPU memory are asked about. Give "
        "checks \"asked\" or \"auto\", or device \"cpu\"");
  }
  return Status();
}

Result<CacheConfig> ParseCache(const Json& json) {
  CacheConfig cache;
  for (const auto& [name, value] : json.items()) {
    const std::string& given = name;
    const auto* field = std::find_if(std::begin(kFields), std::end(kFields),
                                     [&given](const Field& known) { return given == known.name; });
    if (field == std::end(kFields)) {
      return InvalidArgument("cache options have the unknown field '" + name + "'");
    }
    HET_RETURN_IF_ERROR(field->set(field->name, value, &cache));
  }
  HET_RETURN_IF_ERROR(CheckTogether(cache));
  const auto gives = [&json](const char* name) { return json.contains(name); };
  if (cache.staleness && (gives("pull_bound") || gives("push_bound"))) {
    return InvalidArgument(
        "cache options have staleness and pull_bound or push_bound; both bounds follow staleness. Give one "
        "of "
        "the two");
  }
  return cache;
}

// A bound in JSON: null is unbounded.
Json BoundToJson(const Bound& bound) { return bound == kUnbounded ? Json(nullptr) : Json(bound.most); }

}  // namespace

std::string ToJson(const TableOptions& options) {
  Json json = Json::object();
  if (const auto& cache = options.cache) {
    json["cache"] = {{"capacity", cache->capacity},
                     {"policy", cache->policy},
                     {"admit_after", cache->admit_after},
                     {"write_back_rows", cache->write_back_rows}};
    if (cache->staleness) {
      json["cache"]["staleness"] = BoundToJson(*cache->staleness);
      json["cache"]["workers"] = cache->workers;
    } else {
      json["cache"]["pull_bound"] = BoundToJson(cache->pull_bound);
      json["cache"]["push_bound"] = BoundToJson(cache->push_bound);
    }
    if (cache->wire != RowFormat::kFloat32) json["cache"]["wire"] = RowFormatName(cache->wire);
    if (cache->checks != "asked") json["cache"]["checks"] = cache->checks;
    if (cache->on_device()) json["cache"]["device"] = cache->device;
  }
  return json.dump();
}

Result<TableOptions> ParseTableOptions(const std::string& text) {
  TableOptions options;
  try {
    const Json json = Json::parse(text.empty() ? "{}" : text);
    for (const auto& [field, value] : json.items()) {
      if (field != "cache") return InvalidArgument("table options have the unknown field '" + field + "'");
      if (value.is_null()) continue;
      HET_ASSIGN_OR_RETURN(options.cache, ParseCache(value));
    }
  } catch (const Json::exception& error) {
    return InvalidArgument(std::string("table options are not valid JSON: ") + error.what());
  }
  return options;
}

}  // namespace het
