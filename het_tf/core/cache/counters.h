// The counters of a cached table. One place declares every counter with its meaning.
#pragma once

#include <cstdint>

namespace het {

// The classes of traffic, in rows:   name                 meaning
#define HET_COUNTERS(X)                                                                          \
  X(reads, "unique keys that lookups asked for")                                                 \
  X(hits, "of these: in the cache when the lookup came")                                         \
  X(miss_pull, "rows fetched because they were not in the cache")                                \
  X(update_pull, "cached rows replaced because they were staler than the bound, or invalid")     \
  X(checks, "cached rows whose clock was sent to the server for comparison")                     \
  X(trusted, "cached rows read without a check: no notification of them has come")               \
  X(notified_rows, "cached rows that the server has notified of: they had moved past the bound") \
  X(subscription_resets, "answers that ended all subscriptions: all rows were checked again")    \
  X(bound_push, "rows pushed because their unsent ticks reached the bound, or by a flush")       \
  X(age_push, "rows pushed because a tick had been unsent for push_max_age")                     \
  X(evict_push, "rows pushed because they left the cache")                                       \
  X(inserts, "rows that entered the cache")                                                      \
  X(evictions, "rows that left it")                                                              \
  X(transient_rows, "rows that were not admitted, and left after their step")                    \
  X(row_bytes_in, "bytes of rows received")                                                      \
  X(row_bytes_out, "bytes of updates sent")                                                      \
  X(metadata_bytes_in, "all other bytes of replies: clocks, heads")                              \
  X(metadata_bytes_out, "all other bytes of requests: keys, clocks, heads")                      \
  X(head_bytes_in, "of these: heads of frames and parts, which tables share")                    \
  X(head_bytes_out, "likewise")                                                                  \
  X(requests, "request frames with something of this table, sent again ones included")           \
  X(resends, "pushes sent again after a failure")                                                \
  X(dropped_remainders, "rows that left with what rounding for the wire had kept back")          \
  X(discarded_ticks, "ticks dropped because their table was loaded or cleared meanwhile")        \
  X(lost_ticks, "ticks lost with a GPU that failed and had not sent them")                       \
  X(repaired, "acknowledged pushes that a server lost and that were kept here and sent again")   \
  X(dropped_pushes, "applied pushes forgotten before they were durable, for want of room")       \
  X(lost_pushes, "acknowledged pushes that a server lost and that were not kept here")           \
  X(ticks, "ticks applied to rows by this worker")

// The lags that checks observed. A bucket of the histogram is known by its upper end, so the figures are
// upper bounds within a factor of two.
struct Staleness {
  uint64_t observed = 0;
  double mean = 0;
  double p99 = 0;
  double max = 0;
};

struct Counters {
#define HET_FIELD(name, help) uint64_t name = 0;
  HET_COUNTERS(HET_FIELD)
#undef HET_FIELD
  // Lags g - b of copies that a check has found within the bound: bucket 0 is lag 0, bucket i is [2^(i-1),
  // 2^i).
  uint64_t lag_histogram[65] = {};

  Staleness staleness() const;
};

}  // namespace het
