// A lookup, from keys to rows: what is cached is held, the rest is asked for (Asker), and when all
// answers have come the rows are the caller's.
//
//   Begin ─► ReadOp, on its way ─► Await ─► Finish: lines and values of every key
#pragma once

#include <memory>

#include "het_tf/core/client/cached_rows.h"
#include "het_tf/core/client/cached_tables.h"
#include "het_tf/core/client/exchange.h"
#include "het_tf/core/client/partition_read.h"
#include "het_tf/core/client/row_sink.h"
#include "het_tf/core/client/waiter.h"

namespace het {

class CacheReader {
 public:
  CacheReader(const CachedTables* tables, Exchange* exchange, Subscriptions* subscriptions, Waiter* waiter)
      : tables_(tables), exchange_(exchange), subscriptions_(subscriptions), waiter_(waiter) {}

  // As Client::Read. Throws std::bad_alloc; then there is no read.
  std::unique_ptr<ReadOp> Begin(CachedRead* read, uint64_t step);
  // Of rows that a gradient misses.
  std::unique_ptr<ReadOp> BeginMissing(CachedRead* read);
  // Until the read is done, of any kind; then Finish.
  Status Await(ReadOp* op);
  // Fills in rows and values, or returns the error; one that is not done is abandoned.
  Status Finish(ReadOp* op);

 private:
  std::unique_ptr<ReadOp> Begin(CachedRead* read, std::unique_ptr<CacheSink> sink);

  const CachedTables* const tables_;
  Exchange* const exchange_;
  Subscriptions* const subscriptions_;
  Waiter* const waiter_;
};

}  // namespace het
