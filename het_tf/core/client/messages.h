// Words for people, in notices and errors.
#ifndef HET_TF_CORE_CLIENT_MESSAGES_H_
#define HET_TF_CORE_CLIENT_MESSAGES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace het {

// "10 s", "0.5 s".
std::string Seconds(double seconds);
// "partition 3", "partitions 3, 4 and 12 more".
std::string PartitionNames(const std::vector<uint32_t>& partitions);

}  // namespace het

#endif  // HET_TF_CORE_CLIENT_MESSAGES_H_
