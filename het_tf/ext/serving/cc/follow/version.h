// A published model's version, as the live files have it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "het_tf/core/base/status.h"
#include "het_tf/ext/serving/cc/follow/live_format.h"

namespace het::follow {

struct Version {
  uint64_t number = 0;     // 0: the base, before any published version
  std::string dense_path;  // the file of the dense weights, relative to the live directory; "": the base's
  std::optional<double> trained_through;  // seconds since 1970
};

// InvalidArgument: a path of over 239 bytes.
Result<VersionRecord> RecordOf(const Version& version);
Version VersionOf(const VersionRecord& record);

}  // namespace het::follow
