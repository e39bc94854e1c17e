// One table whose cache is on a device, as this process's memory knows it: what it is made of, and what
// happened to its rows behind the cache's back and must still be told to the device.
#pragma once

#include <string>

#include "het_tf/core/cache/cache_config.h"
#include "het_tf/core/cache/counters.h"
#include "het_tf/core/client/device_rows.h"
#include "het_tf/core/device/library.h"
#include "het_tf/core/row/schema.h"

namespace het {

// What the library is told of a table. `store`: of any of its partitions. Borrows the schema's name.
//
// keep_updates is always 1: a push bound of 0 would need no memory for updates, but SetWorkers may raise it.
// So a row takes 8 * row_floats bytes and some 32 of clocks, wherever the bound stands.
HetDevTableConfig DeviceConfig(const TableSchema& schema, const CacheConfig& cache, const PartitionId& store);

// The most rows whose cache takes at most `bytes` there; 0: not even a bucket fits.
Result<uint64_t> DeviceRowsThatFit(const DeviceLibrary& library, HetDevTableConfig config, uint64_t bytes);

// Events wait in flags, one a partition, so that they take no memory: they come in the middle of calls of the
// client, from whatever thread runs them, and nothing there may work the device. CatchUp makes them true.
class DeviceTable final : public DeviceLines {
 public:
  static constexpr uint64_t kBucket = 32;  // rows

  DeviceTable(Schema schema, uint32_t partitions);

  const TableSchema& schema() const { return *schema_; }
  const Schema& shared_schema() const { return schema_; }
  const std::string& name() const { return schema_->spec().name; }

  void Invalidate(uint32_t partition) override;
  void Drop(uint32_t partition) override;
  void DropKeys(Span<const Key> keys) override;
  void DropClean() override { clean_ = true; }

  // Tells the device what has happened; a code of the library. *went: rows that were there may be gone. After
  // an error it remains to be told.
  int CatchUp(const DeviceLibrary& library, HetDevContext* context, HetDevStream stream, bool* went);
  // All rows are to go.
  bool dropped() const { return dropped_ == drop_.size(); }

  // Counts a training lookup: different rows, and those of them that were here.
  void Read(uint64_t reads, uint64_t hits);
  // Ticks that were made on the device, and given away by it.
  void Ticked(uint64_t ticks);
  void Gave(const HetDevUpdates& updates);
  // The device is lost. Returns the ticks that were nowhere else.
  uint64_t Lost();

  // While the table is the client's.
  Counters* counters = nullptr;
  HetDevTable* handle = nullptr;
  uint64_t absent = 0;  // keys that were fetched because they were not here

 private:
  void Discard(uint64_t ticks);

  const Schema schema_;
  Vector<uint8_t> drop_;
  Vector<uint8_t> invalid_;
  size_t dropped_ = 0;  // flags that are set
  size_t invalidated_ = 0;
  bool clean_ = false;
  Vector<Key> keys_;  // that are to be dropped
  uint64_t unsent_ = 0;
};

}  // namespace het
