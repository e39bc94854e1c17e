#include "het_tf/core/engine/table_options.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "het_tf/core/cache/table_cache.h"
#include "het_tf/core/engine/extensions.h"

namespace het {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMost = int64_t{1} << 62;
constexpr int64_t kMostRows = (int64_t{1} << 32) - 2;
// A thread that looks after pushes is a few milliseconds late.
constexpr double kLeastAge = 0.01;
constexpr double kMostAge = 1e9;

// --- one kind of value each: into the field, or InvalidArgument

Status Wanted(const std::string& name, const Json& value, const std::string& what) {
  return InvalidArgument("cache." + name + " is " + value.dump() + "; it must be " + what);
}

Status SetNumber(const std::string& name, const Json& value, int64_t least, int64_t most, int64_t* out) {
  const bool whole = value.is_number_integer() &&
                     !(value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(kMost));
  const int64_t number = whole ? value.get<int64_t>() : least - 1;
  if (number < least || number > most) {
    return Wanted(name, value, "an integer from " + std::to_string(least) + " to " + std::to_string(most));
  }
  *out = number;
  return Status();
}

template <std::optional<int64_t> CacheOptions::*field, int64_t least, int64_t most>
Status SetOptional(const std::string& name, const Json& value, CacheOptions* options) {
  int64_t number = 0;
  HET_RETURN_IF_ERROR(SetNumber(name, value, least, most, &number));
  options->*field = number;
  return Status();
}

template <typename T, T CacheConfig::*field, int64_t least, int64_t most>
Status SetCount(const std::string& name, const Json& value, CacheOptions* options) {
  int64_t number = 0;
  HET_RETURN_IF_ERROR(SetNumber(name, value, least, most, &number));
  options->config.*field = static_cast<T>(number);
  return Status();
}

template <std::optional<int64_t> CacheOptions::*field>
Status SetBound(const std::string& name, const Json& value, CacheOptions* options) {
  int64_t number = kUnbounded;
  if (!value.is_null() && !SetNumber(name, value, 0, kMost, &number).ok()) {
    return Wanted(name, value,
                  "a number of updates >= 0 (0: every read is checked and every update sent at once), or "
                  "math.inf for unbounded");
  }
  options->*field = number;
  return Status();
}

Status SetAge(const std::string& name, const Json& value, CacheOptions* options) {
  const double seconds = value.is_number() ? value.get<double>() : 0;
  if (value.is_null() || (seconds >= kLeastAge && seconds <= kMostAge)) {
    options->push_max_age = value.is_null() ? std::nullopt : std::optional(seconds);
    return Status();
  }
  return Wanted(name, value, "a number of seconds from 0.01 to 1e9, or math.inf for no limit");
}

// A bound, or the name of exact steps whose rows are rounded on their way.
Status SetStaleness(const std::string& name, const Json& value, CacheOptions* options) {
  options->synchronous = value == "synchronous";
  if (options->synchronous) options->staleness = 0;
  if (options->synchronous || SetBound<&CacheOptions::staleness>(name, value, options).ok()) return Status();
  return Wanted(name, value,
                "a number of updates >= 0 (0: every read is checked and every update sent at once), "
                "\"synchronous\" for 0 with rounded rows, or math.inf for unbounded");
}

template <typename T>
Status SetWord(const Json& value, Result<T> (*parse)(const std::string&), T* out) {
  const auto word = parse(value.is_string() ? value.get<std::string>() : value.dump());
  if (!word.ok()) return InvalidArgument("cache." + word.status().message());
  *out = word.value();
  return Status();
}

struct Field {
  const char* name;
  Status (*set)(const std::string& name, const Json& value, CacheOptions* options);
};
const Field kFields[] = {
    {"rows", SetOptional<&CacheOptions::rows, 0, kMostRows>},
    {"bytes", SetOptional<&CacheOptions::bytes, 1, kMost>},
    {"tables", SetOptional<&CacheOptions::tables, 1, kMost>},
    {"layer", SetCount<uint64_t, &CacheConfig::layer, 1, kMost>},
    {"staleness", SetStaleness},
    {"pull_bound", SetBound<&CacheOptions::pull_bound>},
    {"push_bound", SetBound<&CacheOptions::push_bound>},
    {"push_max_age", SetAge},
    {"workers", SetCount<uint32_t, &CacheConfig::workers, 1, UINT32_MAX>},
    {"write_back_rows", SetCount<size_t, &CacheConfig::write_back_rows, 0, kMost>},
    {"policy", [](const std::string&, const Json& value,
                  CacheOptions* options) { return SetWord(value, ParsePolicy, &options->config.policy); }},
    {"checks", [](const std::string&, const Json& value,
                  CacheOptions* options) { return SetWord(value, ParseChecks, &options->checks.emplace()); }},
    {"wire", [](const std::string&, const Json& value,
                CacheOptions* options) { return SetWord(value, ParseRowFormat, &options->wire.emplace()); }},
    {"device",
     [](const std::string& name, const Json& value, CacheOptions* options) {
       if (value != "cpu" && value != "gpu") return Wanted(name, value, "\"cpu\" or \"gpu\"");
       options->config.on_device = value == "gpu";
       return Status();
     }},
};

// --- rules

Status CheckTogether(const CacheOptions& options) {
  if (options.rows && options.bytes) {
    return InvalidArgument("cache.bytes is " + std::to_string(*options.bytes) + ", and cache.rows is " +
                           std::to_string(*options.rows) +
                           "; each says how large the cache is, so give one of the two");
  }
  if (!options.config.on_device) return Status();
  if (options.rows == 0) {
    return InvalidArgument(
        "cache.rows is 0 with device=\"gpu\"; a cache on a GPU holds at least one row: give rows or bytes, "
        "or "
        "device=\"cpu\"");
  }
  if (options.wire && options.wire != RowFormat::kFloat32) {
    return InvalidArgument(std::string("cache.wire is \"") + RowFormatName(*options.wire) +
                           "\" with device=\"gpu\"; rows of a cache on a GPU travel as float32: leave wire "
                           "out, or give device=\"cpu\"");
  }
  if (options.push_max_age) {
    return InvalidArgument(
        "cache.push_max_age is " + Json(*options.push_max_age).dump() +
        " with device=\"gpu\"; a cache on a GPU does not know the age of its updates: leave "
        "push_max_age out, or give device=\"cpu\"");
  }
  return Status();
}

// How many rows fit into the table's equal share.
Result<int64_t> RowsOf(const CacheOptions& options, const TableSchema& schema, const CacheConfig& config) {
  const int64_t tables = options.tables.value_or(1);
  const int64_t bytes = *options.bytes / tables;
  auto least = static_cast<int64_t>(Lines::Bytes(schema.row_floats()));
  int64_t rows = std::min(bytes / least, kMostRows);
  if (config.on_device) {
    HET_RETURN_IF_ERROR(extensions.CheckDevice());
    HET_ASSIGN_OR_RETURN(rows, extensions.rows_on_device(schema, config, bytes, &least));
  }
  if (rows > 0) return rows;
  return InvalidArgument("cache.bytes is " + std::to_string(*options.bytes) +
                         (tables > 1 ? " for " + std::to_string(tables) + " tables together" : "") +
                         "; table '" + schema.spec().name + "': no cache fits into " + std::to_string(bytes) +
                         " bytes; the smallest one takes " + std::to_string(least));
}

// A bound in JSON: null is unbounded.
Json BoundToJson(const Bound& bound) { return bound == kUnbounded ? Json(nullptr) : Json(bound.most); }

}  // namespace

Result<TableOptions> CacheOptions::Resolve(const TableSchema& schema, bool remote) const {
  if (!rows && !bytes && !remote && !config.on_device) return TableOptions();
  CacheConfig cache = config;
  if (rows) cache.capacity = static_cast<size_t>(*rows);
  if (bytes) {
    HET_ASSIGN_OR_RETURN(const int64_t fit, RowsOf(*this, schema, config));
    cache.capacity = static_cast<size_t>(fit);
    cache.layer_bytes = static_cast<size_t>(*bytes);
  }
  if (!bytes || cache.on_device) cache.layer = 0;
  const int64_t dial = staleness.value_or(CacheConfig::kStaleness);
  if (pull_bound || push_bound) {
    cache.pull_bound = pull_bound.value_or(dial);
    cache.push_bound = push_bound.value_or(dial);
  } else {
    cache.staleness = dial;
    cache.Follow(schema.optimizer());
  }
  const bool exact = cache.sync().Exact();
  const bool rounds = remote && !cache.on_device && cache.capacity > 0 && (!exact || synchronous);
  cache.wire = wire.value_or(rounds ? RowFormat::kInt4 : RowFormat::kFloat32);
  const bool subscribes = cache.pull_bound.most >= CacheConfig::kLeastNotified;
  cache.checks = checks.value_or(subscribes ? Checks::kNotified : Checks::kAsked);
  if (remote) cache.push_max_age = push_max_age;
  return TableOptions{cache};
}

Result<CacheOptions> ParseCacheOptions(const std::string& text) {
  CacheOptions options;
  try {
    const Json json = Json::parse(text);
    for (const auto& [name, value] : json.items()) {
      const std::string& given = name;
      const auto* field = std::find_if(std::begin(kFields), std::end(kFields),
                                       [&given](const Field& known) { return given == known.name; });
      if (field == std::end(kFields)) {
        return InvalidArgument("cache options have the unknown field '" + name + "'");
      }
      HET_RETURN_IF_ERROR(field->set(field->name, value, &options));
    }
  } catch (const Json::exception& error) {
    return InvalidArgument(std::string("cache options are not valid JSON: ") + error.what());
  }
  HET_RETURN_IF_ERROR(CheckTogether(options));
  return options;
}

std::string ToJson(const TableOptions& options) {
  Json json = Json::object();
  if (const auto& cache = options.cache) {
    const bool shares = cache->layer != 0;
    json["cache"] = {{shares ? "bytes" : "rows", shares ? cache->layer_bytes : cache->capacity},
                     {"policy", PolicyName(cache->policy)},
                     {"write_back_rows", cache->write_back_rows},
                     {"wire", RowFormatName(cache->wire)},
                     {"checks", ChecksName(cache->checks)},
                     {"push_max_age", cache->push_max_age ? Json(*cache->push_max_age) : Json(nullptr)},
                     {"device", cache->on_device ? "gpu" : "cpu"}};
    if (cache->staleness) {
      json["cache"]["staleness"] = BoundToJson(*cache->staleness);
      json["cache"]["workers"] = cache->workers;
    } else {
      json["cache"]["pull_bound"] = BoundToJson(cache->pull_bound);
      json["cache"]["push_bound"] = BoundToJson(cache->push_bound);
    }
  }
  return json.dump();
}

}  // namespace het
