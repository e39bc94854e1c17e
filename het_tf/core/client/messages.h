// Words for people, in notices and errors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace het {

// "10 s", "0.5 s".
std::string Seconds(double seconds);
// "partition 3", "partitions 3, 4 and 12 more".
std::string PartitionNames(const std::vector<uint32_t>& partitions);

}  // namespace het
