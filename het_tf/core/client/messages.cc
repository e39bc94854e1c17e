#include "het_tf/core/client/messages.h"

#include <cmath>

namespace het {

std::string Seconds(double seconds) {
  const auto tenths = static_cast<int64_t>(std::llround(seconds * 10));
  return std::to_string(tenths / 10) + (tenths % 10 == 0 ? "" : "." + std::to_string(tenths % 10)) + " s";
}

std::string PartitionNames(const std::vector<uint32_t>& partitions) {
  constexpr size_t kNamed = 8;
  std::string names = partitions.size() == 1 ? "partition " : "partitions ";
  for (size_t i = 0; i < partitions.size() && i < kNamed; ++i) {
    names += (i == 0 ? "" : ", ") + std::to_string(partitions[i]);
  }
  if (partitions.size() > kNamed) names += " and " + std::to_string(partitions.size() - kNamed) + " more";
  return names;
}

}  // namespace het
