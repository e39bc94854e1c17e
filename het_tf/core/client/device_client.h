// The part of a client that serves tables whose cache is on a device (device_rows.h): reads that give rows
// away, and pushes of updates that come from there.
//
// Their TableCache has the schema, bounds, counters, numbers of lookups and admission filter, and never a
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
  // Whether the table is cached on a device. The calls below ask it, too.
  Status Check(uint64_t table) const;
  // Fills in every part. After an error nothing of it is to be used.
  Status Read(DeviceRead* read, bool training);
  // The same, step by step: Client::Progress until it is done.
  std::unique_ptr<ReadOp> BeginRead(DeviceRead* read, bool training);
  // Puts the updates into frames and sends what can be sent. After an error, which is
  // Check's, and when it throws std::bad_alloc, nothing was taken; trouble of the network is
  // Wait's to tell.
  Status Push(const DevicePush& push);
  // Frames of pushes to come are numbered from here on.
  uint64_t next_frame() const { return pushes_->next_frame(); }
  // The end of a step: waits until what was pushed of device tables that bound their pushes is applied, and
  // makes room for frames that are kept. Frames of this step, those from `of_step` on, are waited for only
  // where a row has more ticks than the push bound; the step has pushed no row of its tables twice. After an
  // error frames are kept and will be sent.
  Status Wait(uint64_t of_step = UINT64_MAX);
  // What reads have of the partition must not be trusted any more.
  void AskAnew(Session* session) { reads_.AskAnew(session); }

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
