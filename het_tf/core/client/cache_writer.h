// A gradient, from sums to ticks and pushes: fetches rows that have left since the lookup, ticks every
// touched row, and sends due updates.
//
//   Write: fetch missing rows ─► tick ─► PushBuilder::OfStep ─► wait, if the push bound requires it
#pragma once

#include "het_tf/core/base/parallel.h"
#include "het_tf/core/base/trace_log.h"
#include "het_tf/core/client/cache_reader.h"
#include "het_tf/core/client/cached_rows.h"
#include "het_tf/core/client/cached_tables.h"
#include "het_tf/core/client/exchange.h"
#include "het_tf/core/client/push_builder.h"
#include "het_tf/core/client/waiter.h"

namespace het {

class CacheWriter {
 public:
  CacheWriter(const CachedTables* tables, Exchange* exchange, PushBuilder* pushes, CacheReader* reader,
              Waiter* waiter, TraceLog* trace)
      : tables_(tables),
        exchange_(exchange),
        pushes_(pushes),
        reader_(reader),
        waiter_(waiter),
        trace_(trace) {}

  // As Client.
  Status Write(CachedWrite* write, uint64_t step, ThreadPool* pool);
  uint64_t UnappliedTicks(uint64_t table, Key key);

 private:
  Status FetchMissing(CachedWrite* write);
  // Call before the ticks of rows that have updates.
  void NoteAges(const CachedWrite& write, double now);
  void Tick(CachedWrite* write, uint64_t step, ThreadPool* pool);
  Status WaitForPushBound(const CachedWrite& write);
  void MarkMoved(Span<const OthersKeys> rows);

  const CachedTables* const tables_;
  Exchange* const exchange_;
  PushBuilder* const pushes_;
  CacheReader* const reader_;
  Waiter* const waiter_;
  TraceLog* const trace_;
};

}  // namespace het
