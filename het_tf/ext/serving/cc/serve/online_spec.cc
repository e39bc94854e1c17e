#include "het_tf/ext/serving/cc/serve/online_spec.h"

#include <nlohmann/json.hpp>

namespace het::serve {
namespace {

using Json = nlohmann::json;

Status Refuse(const std::string& field, const Json& value, const std::string& what) {
  return InvalidArgument(field + " is " + value.dump() + "; it must be " + what);
}

// Sets *out if `value` lies between the bounds.
template <typename T, typename Out>
Status SetNumber(const std::string& field, const Json& value, double least, double most,
                 const std::string& what, Out* out) {
  const bool fits = std::is_integral_v<T> ? value.is_number_integer() : value.is_number();
  if (!fits || !(value.get<double>() >= least) || !(value.get<double>() <= most)) {
    return Refuse(field, value, what);
  }
  *out = value.get<T>();
  return Status();
}

Status Set(const std::string& field, const Json& value, OnlineSpec* spec) {
  OnlineConfig& config = spec->config;
  if (field == "ps") {
    if (!value.is_string() || value.get<std::string>().empty()) {
      return Refuse(field, value, "the address of the parameter server, as 'redis://HOST:PORT'");
    }
    spec->ps = value.get<std::string>();
    return Status();
  }
  if (field == "max_lag") {
    return SetNumber<double>(field, value, 0, 1e9, "seconds, from 0 on", &config.max_lag);
  }
  if (field == "pull_bound") {
    return SetNumber<int64_t>(field, value, 0, 1e15, "a whole number of ticks, from 0 on",
                              &config.pull_bound);
  }
  if (field == "cache_rows") {
    return SetNumber<size_t>(field, value, 0, 4e9, "a whole number of rows, 0 to 4e9", &config.cache_rows);
  }
  if (field == "stale_ok") {
    if (!value.is_boolean()) return Refuse(field, value, "true or false");
    config.stale_ok = value.get<bool>();
    return Status();
  }
  if (field == "deadline") {
    return SetNumber<double>(field, value, 0.001, 1e6, "seconds, 0.001 to 1e6", &config.deadline);
  }
  if (field == "connections") {
    return SetNumber<size_t>(field, value, 1, 1024, "a whole number, 1 to 1024", &config.connections);
  }
  return InvalidArgument("an online lookup has the unknown option '" + field + "'");
}

}  // namespace

Result<OnlineSpec> ParseOnlineSpec(const std::string& text) {
  OnlineSpec spec;
  try {
    const Json json = Json::parse(text);
    if (!json.is_object()) return InvalidArgument("online is " + text + "; it must be a JSON object");
    for (const auto& [field, value] : json.items()) HET_RETURN_IF_ERROR(Set(field, value, &spec));
  } catch (const Json::exception& error) {
    return InvalidArgument(std::string("the options of an online lookup are not valid JSON: ") +
                           error.what());
  }
  if (spec.ps.empty()) return InvalidArgument("an online lookup needs ps, the address of a parameter server");
  if (spec.config.max_lag.has_value() == spec.config.pull_bound.has_value()) {
    return InvalidArgument(
        "an online lookup needs one of max_lag (seconds) and pull_bound (ticks), and not both");
  }
  return spec;
}

}  // namespace het::serve
