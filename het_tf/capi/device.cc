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
  auto spec = ParseTableSpec(spec_text);
  if (!spec.ok()) return spec.status();
  auto schema = TableSchema::Create(spec.value());
  if (!schema.ok()) return schema.status();
  auto options = ParseTableOptions("{\"cache\": " + cache_text + "}");
  if (!options.ok()) return options.status();
  const CacheConfig cache = options.value().cache.value_or(CacheConfig());
  int64_t rows = 0, least = static_cast<int64_t>(schema.value()->row_floats() * sizeof(float)) + kLineBytes;
  if (!cache.on_device()) {
    rows = std::min(bytes / least, kMostLines);
  } else {
    const auto library = DeviceLibrary::Get();
    if (!library.ok()) return library.status();
    HetDevTableConfig config = DeviceConfig(*schema.value(), cache, {0, LocalService::kDefaultPartitions, 0});
    auto fit =
        DeviceRowsThatFit(*library.value(), config, static_cast<uint64_t>(std::max<int64_t>(0, bytes)));
    if (!fit.ok()) return fit.status();
    rows = static_cast<int64_t>(fit.value());
    config.capacity = 1;
    uint64_t one = 0;
    HET_RETURN_IF_ERROR(library.value()->ToStatus(library.value()->HetDevTableBytes(&config, &one),
                                                  "table '" + spec.value().name + "'"));
    least = static_cast<int64_t>(one);
  }
  if (rows > 0) return rows;
  return InvalidArgument("table '" + spec.value().name + "': no cache fits into " + std::to_string(bytes) +
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
    const auto library = het::DeviceLibrary::Get();
    if (!library.ok()) return library.status();
    const auto described = library.value()->Describe();
    if (!described.ok()) return described.status();
    const HetDevInfo& info = described.value();
    Text() = nlohmann::json({{"library", library.value()->path()},
                             {"device", library.value()->device()},
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
