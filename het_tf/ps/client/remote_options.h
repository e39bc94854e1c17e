// How a worker treats its parameter server: what users give to het_tf.init beside the address.
//
//   {"durability": "applied" | "replicated" | "checkpoint", "min_replicas": 1, "keep_bytes": 268435456,
//    "timeout": 10, "deadline": 60}
//
// Fields that are missing have the values of ClientConfig.
#pragma once

#include <string>

#include "het_tf/core/base/status.h"
#include "het_tf/core/client/client.h"

namespace het {

// InvalidArgument names the field, its value, and what it may be. "" is {}.
Result<ClientConfig> ParseRemoteOptions(const std::string& json);
// All fields.
std::string RemoteOptionsJson(const ClientConfig& config);

}  // namespace het
