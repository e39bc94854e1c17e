// Turns the keys of one read into questions to partitions. All reads classify their keys here:
//
//   cached, bounded, subscribed, ...   what SyncPolicy::OnRead says: check, fetch, nothing, or trust. A
//                                      training lookup may trust a row if the partition has said since the
//                                      lookup before what had moved (LookupNumbers::answered)
//   absent                             fetch
//
// Args of Key: the table's cache, the partition and key, and the line that has it or kNoRow. For
// example a training read of keys 7 (cached, base 3) and 9 (absent) of partition 0 becomes one
// PartitionRead with checks {7}, clocks {3} and fetches {9}.
#pragma once

#include <map>

#include "het_tf/core/client/partition_read.h"
#include "het_tf/core/client/session.h"
#include "het_tf/core/client/subscriptions.h"

namespace het {

class Asker {
 public:
  Asker(ReadOp* op, Subscriptions* subscriptions) : op_(op), subscriptions_(subscriptions) {}

  void Key(TableCache* cache, uint32_t partition, het::Key key, uint32_t line);
  // Rows for a device, whose bases the caller gives. `training`: which of them may enter the cache.
  void ForDevice(TableCache* cache, DeviceRead::Part* rows, bool training);

  // Hands all questions over; the read is done when those are answered that ask about rows.
  void Ask(std::deque<Session>* sessions);

 private:
  void Hand(const PartitionReadPtr& part, Session* session);
  TableRead* Table(TableCache* cache, uint32_t partition);
  SyncPolicy::Pull PullOf(TableCache* cache, uint32_t line) const;

  ReadOp* const op_;
  Subscriptions* const subscriptions_;
  std::map<uint32_t, PartitionReadPtr> by_partition_;
  TableRead* last_ = nullptr;  // that a key was added to, of last_partition_
  uint32_t last_partition_ = 0;
  SyncPolicy sync_;      // of its table
  bool trusts_ = false;  // rows that are subscribed there
};

}  // namespace het
