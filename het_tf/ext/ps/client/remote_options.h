// Options of a worker's parameter server: the arguments of het_tf.init besides the address.
//
//   {"durability": "applied" | "replicated" | "checkpoint", "min_replicas": 1, "keep_bytes": 268435456,
//    "timeout": 10, "deadline": 60}
//
// Missing fields default to ClientConfig's.
#pragma once

#include <string>

#include "het_tf/core/base/status.h"
#include "het_tf/core/client/client.h"

namespace het {

// InvalidArgument names the field, its value, and the allowed values. "" is {}.
Result<ClientConfig> ParseRemoteOptions(const std::string& json);
// Writes all fields.
std::string RemoteOptionsJson(const ClientConfig& config);

}  // namespace het
