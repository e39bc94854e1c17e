#include "het_tf/ext/serving/cc/follow/version.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace het::follow {

Result<VersionRecord> RecordOf(const Version& version) {
  VersionRecord record = {};
  if (version.dense_path.size() >= sizeof record.dense_path) {
    return InvalidArgument("the path of the dense weights is longer than 239 bytes: " + version.dense_path);
  }
  record.number = version.number;
  record.trained_through = version.trained_through.value_or(std::numeric_limits<double>::quiet_NaN());
  std::memcpy(record.dense_path, version.dense_path.data(), version.dense_path.size());
  return record;
}

Version VersionOf(const VersionRecord& record) {
  Version version{record.number,
                  std::string(record.dense_path, strnlen(record.dense_path, sizeof record.dense_path)),
                  std::nullopt};
  if (!std::isnan(record.trained_through)) version.trained_through = record.trained_through;
  return version;
}

}  // namespace het::follow
