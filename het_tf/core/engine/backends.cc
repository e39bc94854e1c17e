#include "het_tf/core/engine/backends.h"

#include "het_tf/core/engine/device_backend.h"
#include "het_tf/core/engine/direct_backend.h"

namespace het {

Backends::Backends(LocalService* embedded, ClientDriver* driver, const PartitionId& store) {
  if (embedded != nullptr) all_.push_back(std::make_unique<DirectBackend>(embedded));
  // The cache's backend flushes what a device has pushed, so the device comes first.
  all_.push_back(std::make_unique<DeviceBackend>(driver, store));
  all_.push_back(std::make_unique<CachedBackend>(driver));
}

TableBackend& Backends::Of(const TableOptions& options) const {
  return **std::find_if(all_.begin(), all_.end(),
                        [&](const auto& backend) { return backend->Serves(options); });
}

}  // namespace het
