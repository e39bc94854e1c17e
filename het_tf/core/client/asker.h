// Turns the rows of one read into questions to partitions. All reads of lines ask here:
//
//   cached, bounded, subscribed, ...   what SyncPolicy::OnRead says: check, fetch, nothing, or trust. A
//                                      training lookup may trust a row if the partition has said since the
//                                      lookup before what had moved (LookupNumbers::answered)
//   absent                             fetch
//
// For example a training read of keys 7 (cached, base 3) and 9 (absent) of partition 0 becomes one
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

  // The next rows are of this table and partition. Tables come one after the other.
  void Begin(TableCache* cache, uint32_t partition);
  // `line` has the row, or kNoRow: none; `at`: its place in the read.
  void Key(het::Key key, uint32_t line, uint32_t at);
  // What is asked about the rows of this table and partition.
  TableRead* asked() { return asked_ != nullptr ? asked_ : asked_ = Add(); }

  // Hands all questions over; the read is done when those are answered that ask about rows.
  void Ask(std::deque<Session>* sessions);

 private:
  TableRead* Add();
  void Hand(const PartitionReadPtr& part, Session* session);
  SyncPolicy::Pull PullOf(uint32_t line) const;

  ReadOp* const op_;
  Subscriptions* const subscriptions_;
  std::map<uint32_t, PartitionReadPtr> by_partition_;
  TableCache* cache_ = nullptr;
  uint32_t partition_ = 0;
  TableRead* asked_ = nullptr;  // null: nothing yet
  SyncPolicy sync_;             // of the table
  bool trusts_ = false;         // rows that are subscribed there
};

}  // namespace het
