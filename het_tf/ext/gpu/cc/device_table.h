// This process's view of one table whose cache is on a device: its configuration, and events of its rows that
// the device must still learn.
#pragma once

#include <string>
#include <utility>

#include "het_tf/core/cache/cache_config.h"
#include "het_tf/core/cache/counters.h"
#include "het_tf/core/client/device_lines.h"
#include "het_tf/core/row/schema.h"
#include "het_tf/ext/gpu/cc/library.h"

namespace het {

// The table's configuration for the library. `store`: any of its partitions. Borrows the schema's name.
// Unimplemented: the library does not have the optimizer.
//
// keep_updates is always 1, also for a push bound of 0, which needs no memory for updates. So a row takes 8 *
// row_floats bytes and some 32 of clocks, for any bound.
Result<HetDevTableConfig> DeviceConfig(const TableSchema& schema, const CacheConfig& cache,
                                       const PartitionId& store);

// Returns the most rows whose cache takes at most `bytes`; 0: not even a bucket fits.
Result<uint64_t> DeviceRowsThatFit(const DeviceLibrary& library, HetDevTableConfig config, uint64_t bytes);

// Events set flags, one a partition, so that they take no memory: they arrive inside calls of the client, on
// any of its threads, where the device must not be used. CatchUp applies them.
class DeviceTable final : public DeviceLines {
 public:
  static constexpr uint64_t kBucket = 32;  // rows

  DeviceTable(Schema schema, uint32_t partitions);

  const TableSchema& schema() const { return *schema_; }
  const Schema& shared_schema() const { return schema_; }
  const std::string& name() const { return schema_->spec().name; }

  void Invalidate(uint32_t partition) override { invalid_.Set(partition); }
  void Drop(uint32_t partition) override;
  void DropKeys(Span<const Key> keys) override;
  void DropClean() override { clean_ = true; }
  void Moved(Span<const Key> keys) override;
  bool Unsubscribe(uint32_t partition) override;
  // Rows of this partition become subscribed.
  void Subscribe(uint32_t partition) { subscribed_[partition] = 1; }

  // Applies the events to the device and returns a code of the library. *went: cached rows may have been
  // dropped. After an error the remaining events stay.
  int CatchUp(const DeviceLibrary& library, HetDevContext* context, HetDevStream stream, bool* went);
  // Whether all rows must be dropped.
  bool dropped() const { return drop_.all(); }

  // Counts a training lookup: unique rows, those of them that were cached, and that the store was not asked
  // about because they are subscribed.
  void Read(uint64_t reads, uint64_t hits, uint64_t trusted);
  // Counts ticks made on the device, and ticks exported by it.
  void Ticked(uint64_t ticks);
  void Gave(const HetDevUpdates& updates);
  // The device is lost. Returns the number of ticks that were lost with it.
  uint64_t Lost();

  // Set while the client has the table.
  Counters* counters = nullptr;
  HetDevTable* handle = nullptr;
  uint64_t absent = 0;  // keys that were fetched because they were absent

 private:
  // A flag for each partition.
  struct Flags {
    explicit Flags(uint32_t partitions) : flags(partitions) {}
    void Set(uint32_t partition) { set += std::exchange(flags[partition], uint8_t{1}) == 0; }
    void Reset();
    bool all() const { return set == flags.size(); }

    Vector<uint8_t> flags;
    size_t set = 0;  // number of flags that are set
  };
  void Discard(uint64_t ticks);

  const Schema schema_;
  Flags drop_, invalid_, unsubscribe_;
  bool clean_ = false;
  Vector<Key> keys_;            // keys to drop
  Vector<Key> moved_;           // keys that the store has named
  Vector<uint8_t> subscribed_;  // of each partition: rows may be
  uint64_t unsent_ = 0;
};

}  // namespace het
