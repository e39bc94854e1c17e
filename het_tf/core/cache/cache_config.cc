#include "het_tf/core/cache/cache_config.h"

#include <algorithm>
#include <array>

namespace het {
namespace {

// Names in the order of their enum.
constexpr std::array kPolicies = {"lru", "lfu", "light_lfu"};
constexpr std::array kChecks = {"asked", "notified"};

template <typename Enum, size_t n>
Result<Enum> Parse(const char* what, const std::array<const char*, n>& names, const std::string& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<Enum>(found - names.begin());
  std::string known;
  for (size_t i = 0; i < n; ++i) {
    known += std::string(i == 0 ? "" : i + 1 == n ? " or " : ", ") + '"' + names[i] + '"';
  }
  return InvalidArgument(std::string(what) + " is '" + name + "'; it must be " + known);
}

}  // namespace

Result<Policy> ParsePolicy(const std::string& name) { return Parse<Policy>("policy", kPolicies, name); }
const char* PolicyName(Policy policy) { return kPolicies[static_cast<size_t>(policy)]; }
Result<Checks> ParseChecks(const std::string& name) { return Parse<Checks>("checks", kChecks, name); }
const char* ChecksName(Checks checks) { return kChecks[static_cast<size_t>(checks)]; }

}  // namespace het
