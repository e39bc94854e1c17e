// Turns the keys of one read into questions to partitions. All reads classify their keys here:
//
//   cached, bounded, subscribed, ...   what SyncPolicy::OnRead says: check, fetch, nothing, or trust. A
//                                      training lookup may trust a row if the partition has said since the
//                                      lookup before what had moved (LookupNumbers::answered)
//   asked about by a read ahead        waited for, and looked at again once the answer is here (RowsOnWay)
//   absent                             fetch
//
// A read ahead leaves cached rows alone, unless they are to be checked ahead.
//
// Args of Key: the table's cache, the partition and key, and the line that has it or kNoRow. For
// example a training read of keys 7 (cached, base 3) and 9 (absent) of partition 0 becomes one
// PartitionRead with checks {7}, clocks {3} and fetches {9}.
#pragma once

#include <map>

#include "het_tf/core/client/partition_read.h"
#include "het_tf/core/client/rows_on_way.h"
#include "het_tf/core/client/session.h"
#include "het_tf/core/client/subscriptions.h"

namespace het {

class Asker {
 public:
  // `waits`: keys that are on their way are waited for.
  Asker(ReadOp* op, RowsOnWay* on_way, Subscriptions* subscriptions, bool waits = true)
      : op_(op), on_way_(on_way), subscriptions_(subscriptions), waits_(waits) {}

  void Key(TableCache* cache, uint32_t partition, het::Key key, uint32_t line);
  // The next keys are of a read that waited for them (RowsOnWay): they are as fresh as when it began.
  void Resume(const TableRead* waited) { waited_ = waited; }
  // Rows for a device, whose bases the caller gives. `training`: which of them may enter the cache.
  void ForDevice(TableCache* cache, DeviceRead::Part* rows, bool training);

  // Hands all questions over; the read is done when those are answered that ask about rows.
  void Ask(std::deque<Session>* sessions);

 private:
  void Hand(const PartitionReadPtr& part, Session* session);
  void Absent(TableCache* cache, uint32_t partition, het::Key key);
  TableRead* Table(TableCache* cache, uint32_t partition);
  // The last lookup for which rows that this read ahead checks are fresh; none: it checks none.
  std::optional<uint32_t> FreshUntil(const TableCache& cache) const;
  SyncPolicy::Pull PullOf(TableCache* cache, uint32_t line) const;
  void AddOnWay(const PartitionReadPtr& part);

  ReadOp* const op_;
  RowsOnWay* const on_way_;
  Subscriptions* const subscriptions_;
  const bool waits_;
  const TableRead* waited_ = nullptr;
  std::map<uint32_t, PartitionReadPtr> by_partition_;
  TableRead* last_ = nullptr;  // that a key was added to, of last_partition_
  uint32_t last_partition_ = 0;
  SyncPolicy sync_;      // of its table
  bool trusts_ = false;  // rows that are subscribed there
};

}  // namespace het
