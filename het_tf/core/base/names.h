// Enums by the names that users give.
#pragma once

#include <algorithm>
#include <array>
#include <string>

#include "het_tf/core/base/status.h"

namespace het {

// Returns the value whose number is the place of its name. InvalidArgument lists the names; `what` is the
// argument.
template <typename Enum, size_t n>
Result<Enum> ParseName(const std::string& what, const std::array<const char*, n>& names,
                       const std::string& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<Enum>(found - names.begin());
  std::string known;
  for (size_t i = 0; i < n; ++i) {
    known += std::string(i == 0 ? "" : i + 1 == n ? " or " : ", ") + '"' + names[i] + '"';
  }
  return InvalidArgument(what + " is '" + name + "'; it must be " + known);
}

}  // namespace het
