#include "het_tf/core/cache/cache_config.h"

#include <algorithm>
#include <array>

namespace het {
namespace {

// Names in the order of their enum.
constexpr std::array<const char*, 3> kPolicies = {"lru", "lfu", "light_lfu"};
constexpr std::array<const char*, 3> kChecks = {"asked", "told", "auto"};

template <typename Enum>
Result<Enum> Parse(const char* what, const std::array<const char*, 3>& names, const std::string& name) {
  const auto* const found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<Enum>(found - names.begin());
  return InvalidArgument(std::string(what) + " is '" + name + "'; it must be \"" + names[0] + "\", \"" +
                         names[1] + "\" or \"" + names[2] + "\"");
}

}  // namespace

Result<Policy> ParsePolicy(const std::string& name) { return Parse<Policy>("policy", kPolicies, name); }
const char* PolicyName(Policy policy) { return kPolicies[static_cast<size_t>(policy)]; }
Result<Checks> ParseChecks(const std::string& name) { return Parse<Checks>("checks", kChecks, name); }
const char* ChecksName(Checks checks) { return kChecks[static_cast<size_t>(checks)]; }

}  // namespace het
