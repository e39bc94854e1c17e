#include "het_tf/capi/device.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "het_tf/capi/answer.h"
#include "het_tf/core/device/device_table.h"
#include "het_tf/core/store/local_service.h"

namespace het {
namespace {

// Of a line of a cache in this process (table_cache.h): what is not its row.
constexpr int64_t kLineBytes = 58;
constexpr int64_t kMostLines = (int64_t{1} << 32) - 2;

Result<int64_t> CacheRows(const std::string& spec_text, const std::string& cache_text, int64_t bytes) {
  HET_ASSIGN_OR_RETURN(auto spec, ParseTableSpec(spec_text));
  HET_ASSIGN_OR_RETURN(auto schema, TableSchema::Create(spec));
  HET_ASSIGN_OR_RETURN(auto options, ParseTableOptions("{\"cache\": " + cache_text + "}"));
  const CacheConfig cache = options.cache.value_or(CacheConfig());
  int64_t rows = 0, least = static_cast<int64_t>(schema->row_floats() * sizeof(float)) + kLineBytes;
  if (!cache.on_device()) {
    rows = std::min(bytes / least, kMostLines);
  } else {
    HET_ASSIGN_OR_RETURN(const auto library, DeviceLibrary::Get());
    HetDevTableConfig config = DeviceConfig(*schema, cache, {0, LocalService::kDefaultPartitions, 0});
    HET_ASSIGN_OR_RETURN(
        const uint64_t fit,
        DeviceRowsThatFit(*library, config, static_cast<uint64_t>(std::max<int64_t>(0, bytes))));
    rows = static_cast<int64_t>(fit);
    config.capacity = 1;
    uint64_t one = 0;
    HET_RETURN_IF_ERROR(
        library->ToStatus(library->HetDevTableBytes(&config, &one), "table '" + spec.name + "'"));
    least = static_cast<int64_t>(one);
  }
  if (rows > 0) return rows;
  return InvalidArgument("table '" + spec.name + "': no cache fits into " + std::to_string(bytes) +
                         " bytes; the smallest one takes " + std::to_string(least));
}

}  // namespace
}  // namespace het

using het::Answer;
using het::Status;
using het::Text;

int HetLoadDeviceLibrary(const char* path, int device) {
  return Answer([&] { return het::DeviceLibrary::Load(path, device); });
}

int HetDescribeDevice() {
  return Answer([&]() -> Status {
    HET_ASSIGN_OR_RETURN(const auto library, het::DeviceLibrary::Get());
    HET_ASSIGN_OR_RETURN(const auto described, library->Describe());
    const HetDevInfo& info = described;
    Text() = nlohmann::json({{"library", library->path()},
                             {"device", library->device()},
                             {"executor", info.executor},
                             {"built", info.built},
                             {"name", info.name},
                             {"compute_capability", info.compute_capability},
                             {"driver_version", info.driver_version},
                             {"runtime_version", info.runtime_version},
                             {"multiprocessors", info.multiprocessors},
                             {"memory_bytes", info.memory_bytes},
                             {"free_bytes", info.free_bytes}})
                 .dump();
    return Status();
  });
}

int HetCacheRows(const char* spec, const char* cache, int64_t bytes, int64_t* rows) {
  return Answer([&] { return het::Give(het::CacheRows(spec, cache, bytes), rows); });
}
