// How an exported graph says where its live tables are, and how old their rows may be: the field "online" of
// a lookup's specs (core/engine/call_spec.h).
//
//   {"ps": "redis://HOST:PORT", "max_lag": seconds | "pull_bound": ticks,
//    "cache_rows": 262144, "stale_ok": false, "deadline": 2, "connections": 4}
//
// "ps" and one of the two bounds are required; the defaults of the others are OnlineConfig's.
#pragma once

#include <string>

#include "het_tf/ext/serving/cc/serve/online_reader.h"

namespace het::serve {

struct OnlineSpec {
  std::string ps;
  OnlineConfig config;
};

// InvalidArgument names the field, its value, and the allowed values.
Result<OnlineSpec> ParseOnlineSpec(const std::string& json);

}  // namespace het::serve
