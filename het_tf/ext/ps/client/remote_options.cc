#include "het_tf/ext/ps/client/remote_options.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace het {
namespace {

constexpr std::pair<const char*, Durability> kDurabilities[] = {{"applied", Durability::kApplied},
                                                                {"replicated", Durability::kReplicated},
                                                                {"checkpoint", Durability::kCheckpoint}};

Status Refuse(const std::string& field, const nlohmann::json& value, const std::string& what) {
  return InvalidArgument(field + " is " + value.dump() + "; it must be " + what);
}

// Sets *out if `value` lies between the bounds.
template <typename T>
Status SetNumber(const std::string& field, const nlohmann::json& value, double least, double most,
                 const std::string& what, T* out) {
  const bool fits = std::is_integral_v<T> ? value.is_number_integer() : value.is_number();
  if (!fits || value.get<double>() < least || value.get<double>() > most) return Refuse(field, value, what);
  *out = value.get<T>();
  return Status();
}

Status Set(const std::string& field, const nlohmann::json& value, ClientConfig* config) {
  constexpr double kLongest = 1e6;
  if (field == "durability") {
    for (const auto& [name, durability] : kDurabilities) {
      if (value == name) {
        config->durability = durability;
        return Status();
      }
    }
    return Refuse(field, value, "'applied', 'replicated' or 'checkpoint'");
  }
  if (field == "min_replicas") {
    return SetNumber(field, value, 1, 1000, "a whole number of replicas, at least 1", &config->min_replicas);
  }
  if (field == "keep_bytes") {
    return SetNumber(field, value, 0, 1e15, "a whole number of bytes, at least 0", &config->keep_bytes);
  }
  if (field == "timeout") {
    return SetNumber(field, value, 0.01, kLongest, "seconds, 0.01 to 1e6", &config->request_timeout);
  }
  if (field == "deadline") {
    return SetNumber(field, value, 0.01, kLongest, "seconds, 0.01 to 1e6", &config->deadline);
  }
  return InvalidArgument("the options of the parameter server have the unknown field '" + field + "'");
}

}  // namespace

Result<ClientConfig> ParseRemoteOptions(const std::string& text) {
  ClientConfig config;
  try {
    const nlohmann::json json = nlohmann::json::parse(text.empty() ? "{}" : text);
    for (const auto& [field, value] : json.items()) HET_RETURN_IF_ERROR(Set(field, value, &config));
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument(std::string("the options of the parameter server are not valid JSON: ") +
                           error.what());
  }
  return config;
}

std::string RemoteOptionsJson(const ClientConfig& config) {
  const auto* const durability =
      std::find_if(std::begin(kDurabilities), std::end(kDurabilities),
                   [&](const auto& known) { return known.second == config.durability; });
  return nlohmann::json({{"durability", durability->first},
                         {"min_replicas", config.min_replicas},
                         {"keep_bytes", config.keep_bytes},
                         {"timeout", config.request_timeout},
                         {"deadline", config.deadline}})
      .dump();
}

}  // namespace het
