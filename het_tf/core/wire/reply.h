// A partition's answer: one Reply for each part of a request frame. parts.h gives the bytes.
#pragma once

#include <cstdint>
#include <string>

#include "het_tf/core/base/bytes.h"
#include "het_tf/core/row/row_format.h"
#include "het_tf/core/row/row_store.h"

namespace het {

// The reason given by a store without memory.
constexpr char kStoreOutOfMemory[] = "the store is out of memory";

enum class FrameStatus : uint8_t {
  kOk = 0,
  kGap = 1,      // seq or after_seq is ahead of last_seq; nothing was done
  kEpoch = 2,    // a table was loaded or cleared; nothing was done, the reply carries the new epochs
  kNoTable = 3,  // nothing was done; the reply names the missing tables
  kWrongPartition = 4,
  kBadFrame = 5,
  kOutOfMemory = 6,  // nothing was applied; last_seq is unchanged
  // Nothing was done, and the answer has no facts about the partition.
  kElsewhere = 7,  // this server does not have it; a frame's only part gets a Redis error with details
  kBusy = 8,       // not now; the message says why
};
constexpr size_t kFrameStatuses = 9;

// The facts about a table that a frame has once (table_heads.h).
struct ReplyTable {
  uint64_t table = 0;
  uint32_t row_floats = 0;
  RowFormat row_format = RowFormat::kFloat32;
  uint32_t block = 0;  // as in a request

  friend bool operator==(const ReplyTable& a, const ReplyTable& b) {
    return a.table == b.table && a.row_floats == b.row_floats && a.row_format == b.row_format &&
           a.block == b.block;
  }
};

struct TableReply : ReplyTable {
  uint64_t epoch = 0;          // only with kEpoch; 0: absent
  Vector<uint32_t> refreshed;  // positions in check_keys
  // Each row's clock less the one of its check, modulo 2^64; 0: it does not exist.
  Vector<Clock> refreshed_lags;
  Vector<Clock> fetched_clocks;  // one for each fetch key
  Vector<Key> notified_keys;     // subscribed rows that moved past the bound; their subscriptions have ended
  // With a ring: the names of these (named_keys.h). Encode takes all keys, too; Decode gives those that have
  // no name, until CompleteKeys.
  Vector<uint32_t> notified_names;
  Vector<float> rows;
  // In place of `rows`, for Encode: each row's address, so that it is copied once. Decode leaves it empty.
  Vector<const float*> stored_rows;
  Vector<uint64_t> lag_histogram;  // see LagBucket

  // Returns the number of keys with a row: their number in `rows`.
  size_t KnownRows() const {
    size_t known = 0;
    for (const Vector<Clock>* clocks : {&refreshed_lags, &fetched_clocks}) {
      for (const Clock clock : *clocks) known += clock != 0;
    }
    return known;
  }
  // Whether it has content about its table.
  bool speaks() const {
    return !refreshed.empty() || !fetched_clocks.empty() || !notified_keys.empty() ||
           !notified_names.empty() || !lag_histogram.empty();
  }

  // Empties the lists, whose memory the next part reuses, and the epoch; the next part writes the rest.
  void Clear() {
    epoch = 0;
    for (Vector<Clock>* clocks : {&refreshed_lags, &fetched_clocks}) clocks->clear();
    refreshed.clear();
    notified_keys.clear();
    notified_names.clear();
    rows.clear();
    stored_rows.clear();
    lag_histogram.clear();
  }
};

// A client requests about this many bytes at once. A server refuses much more: no user may fill its memory.
constexpr size_t kMostReadBytes = size_t{16} << 20;
// Returns the most bytes of one requested key in the answer: position, clock and row.
inline size_t MostAnswerBytes(RowFormat format, size_t block, size_t row_floats) {
  return 5 + 10 + MostRowBytes(format, block, row_floats);
}

// The rows of a reply in order: for the refreshed, then for the fetched keys.
class ReplyRows {
 public:
  explicit ReplyRows(const TableReply& reply) : row_(reply.rows.data()), floats_(reply.row_floats) {}
  // Returns the row of the next key, whose clock must be passed; null: it does not exist.
  const float* Next(Clock clock) {
    if (clock == 0) return nullptr;
    const float* row = row_;
    row_ += floats_;
    return row;
  }

 private:
  const float* row_;
  size_t floats_;
};

struct Reply {
  // Returns its content about the table; null: none.
  const TableReply* Of(uint64_t table) const {
    for (const TableReply& t : tables) {
      if (t.table == table) return &t;
    }
    return nullptr;
  }

  // Whether the partition has no subscriptions from before this answer; of one with notifications.
  bool ends_subscriptions() const { return subscription_reset || notified == 0; }

  FrameStatus status = FrameStatus::kOk;
  std::string message;
  uint32_t request_id = 0;
  uint32_t partition = 0;
  bool same_inc = false;  // the incarnation is the one that the request knew; then inc is 0 here
  uint64_t inc = 0;
  // The newest applied push. `same_seq`: it is the newest that the request named, and 0 here.
  uint64_t last_seq = 0;
  bool same_seq = false;
  uint32_t notified = 0;  // number of this answer among those with notifications; 0: not requested
  bool subscription_reset = false;
  Vector<TableReply> tables;
};

// Histogram of staleness: bucket 0 holds lag 0, bucket i lags in [2^(i-1), 2^i).
inline size_t LagBucket(int64_t lag) {
  return lag <= 0 ? 0 : 64 - static_cast<size_t>(__builtin_clzll(static_cast<uint64_t>(lag)));
}

}  // namespace het
