#include "het_tf/core/cache/cache_config.h"

#include "het_tf/core/base/names.h"

namespace het {
namespace {

// Names in the order of their enum.
constexpr std::array kPolicies = {"lru", "lfu"};
constexpr std::array kChecks = {"asked", "notified"};

}  // namespace

Result<Policy> ParsePolicy(const std::string& name) { return ParseName<Policy>("policy", kPolicies, name); }
const char* PolicyName(Policy policy) { return kPolicies[static_cast<size_t>(policy)]; }
Result<Checks> ParseChecks(const std::string& name) { return ParseName<Checks>("checks", kChecks, name); }
const char* ChecksName(Checks checks) { return kChecks[static_cast<size_t>(checks)]; }

}  // namespace het
