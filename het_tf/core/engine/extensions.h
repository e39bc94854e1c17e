// What extensions add to every engine. They register before the first engine is made; an engine without them
// has no caches in device memory, and plans no lookup before it comes.
#pragma once

#include <cstdint>
#include <memory>

#include "het_tf/core/engine/lookahead.h"
#include "het_tf/core/engine/table_backend.h"

namespace het {

class ClientDriver;
struct EngineParts;

struct Extensions {
  // Caches in the memory of a device (device_backend.h).
  std::unique_ptr<TableBackend> (*device)(ClientDriver* driver, const PartitionId& store) = nullptr;
  // Returns how many rows fit into a cache of so many bytes there. *least: the bytes of the smallest cache.
  Result<int64_t> (*rows_on_device)(const TableSchema& schema, const CacheConfig& config, int64_t bytes,
                                    int64_t* least) = nullptr;
  // Planned lookups (window.h).
  std::unique_ptr<Lookahead> (*lookahead)(EngineParts* parts) = nullptr;

  // FailedPrecondition: there are no caches on a device.
  Status CheckDevice() const {
    if (device != nullptr) return Status();
    return FailedPrecondition(
        "this build has no caches in GPU memory; give the layer het_tf.Cache(device=\"cpu\")");
  }
};
inline Extensions extensions;

}  // namespace het
