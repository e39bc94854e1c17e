#include "het_tf/core/cache/cache_config.h"

namespace het {

Status CheckChecksName(const std::string& checks) {
  if (checks == "auto" || checks == "asked" || checks == "told") return Status();
  return InvalidArgument("checks is '" + checks + "'; it must be \"auto\", \"asked\" or \"told\"");
}

}  // namespace het
