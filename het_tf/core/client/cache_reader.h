// A lookup, from keys to rows: holds cached lines, asks for the rest (Asker), and returns all rows when all
// answers have come.
//
//   Begin ─► ReadOp, in flight ─► Await: lines and values of every key
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

  // As Client::Read. `step`: LookupNumbers::kNoStep for rows that a gradient misses. Throws std::bad_alloc,
  // without a read.
  std::unique_ptr<ReadOp> Begin(CachedRead* read, uint64_t step);
  // Waits until a read of any kind is done. Then fills in rows and values, or returns the error.
  Status Await(ReadOp* op);

 private:
  const CachedTables* const tables_;
  Exchange* const exchange_;
  Subscriptions* const subscriptions_;
  Waiter* const waiter_;
};

}  // namespace het
