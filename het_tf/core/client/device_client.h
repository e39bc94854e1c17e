// The part of a client that serves tables whose cache is on a device (device_rows.h): reads that give rows
// away, and pushes of updates that come from there.
//
// Their TableCache has the schema, bounds, counters, and numbers of lookups, and never a
// line. The device's side tells it of each training lookup (TableCache::BeginLookup), and counts what the
// protocol does not see: reads, hits, inserts, evictions, transient_rows, ticks, discarded_ticks.
#pragma once

#include <memory>

#include "het_tf/core/client/cache_reader.h"
#include "het_tf/core/client/cached_tables.h"
#include "het_tf/core/client/device_reads.h"
#include "het_tf/core/client/device_rows.h"
#include "het_tf/core/client/exchange.h"
#include "het_tf/core/client/push_builder.h"
#include "het_tf/core/client/waiter.h"

namespace het {

class DeviceClient {
 public:
  DeviceClient(CachedTables* tables, Exchange* exchange, Subscriptions* subscriptions, PushBuilder* pushes,
               Waiter* waiter, CacheReader* reader)
      : tables_(tables),
        exchange_(exchange),
        subscriptions_(subscriptions),
        pushes_(pushes),
        waiter_(waiter),
        reader_(reader) {}

  Status AddTable(const Schema& schema, const CacheConfig& config, DeviceLines* lines);
  // OK if the table is cached on a device. The calls below check it, too.
  Status Check(uint64_t table) const;
  // Fills in every part. After an error nothing of it is to be used.
  Status Read(DeviceRead* read, bool training);
  // The same, step by step: Client::Progress until it is done.
  std::unique_ptr<ReadOp> BeginRead(DeviceRead* read, bool training);
  // Puts the updates into frames and sends those that can be sent. Fails only as Check does; after
  // that, or after std::bad_alloc, no update was taken. Wait reports failures of the network.
  Status Push(const DevicePush& push);
  // Frames of pushes to come are numbered from here on.
  uint64_t next_frame() const { return pushes_->next_frame(); }
  // Ends a step: waits until pushes of device tables with a push bound are applied, and until kept frames
  // are within their limit. Frames from `of_step` on are of this step: it waits for them only where a row has
  // more ticks than the push bound. The step must have pushed each row at most once. After an error frames
  // are kept and will be sent.
  Status Wait(uint64_t of_step = UINT64_MAX);
  // Call when bases or rows that reads have of the partition have become invalid.
  void AskAnew(Session* session) { reads_.AskAnew(session); }
  void Notified(uint32_t partition, const Reply& reply) { reads_.Notified(partition, reply); }

 private:
  CachedTables* const tables_;
  Exchange* const exchange_;
  Subscriptions* const subscriptions_;
  PushBuilder* const pushes_;
  Waiter* const waiter_;
  CacheReader* const reader_;
  DeviceReads reads_;
};

}  // namespace het
