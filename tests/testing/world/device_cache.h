// The caches of a worker whose tables are on a device: the product's driver (ext/gpu/cc) over the library
// that HET_DEVICE_LIBRARY names, with a client's reads and writes (CachedRead, CachedWrite). That is the one
// of a GPU, or, as without the variable, the one whose kernels run on the host.
//
// Ids, rows and gradients are in host memory.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "het_tf/core/client/cached_rows.h"
#include "het_tf/ext/gpu/cc/device_tables.h"

namespace het::testing {

// The library that HET_DEVICE_LIBRARY names, or the host's.
std::string DeviceLibraryPath();

class DeviceCache {
 public:
  DeviceCache(Client* client, const PartitionId& store, uint64_t seed);

  Status AddTable(const Schema& schema, const CacheConfig& config);

  // --- as Client's
  Status Read(CachedRead* read, uint64_t token);
  // Touches every key of the write.
  Status Write(const CachedWrite& write, uint64_t token);
  Status Flush();
  uint64_t UnappliedTicks(uint64_t table, Key key);

  // Reads a row of the cache; values: dim floats, empty if the row is absent.
  HetDevRowState Find(uint64_t table, Key key, std::vector<float>* values = nullptr);

 private:
  struct Batch;
  void Release(uint64_t token);

  Client* const client_;
  DeviceTables tables_;
  std::map<uint64_t, TablePtr> by_id_;
  std::deque<uint64_t> kept_;  // tokens of kept steps, oldest first, as in StepStore
};

}  // namespace het::testing
