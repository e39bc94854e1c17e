// Turns the rows of one read into questions to partitions, for all reads that use lines:
//
//   cached, bounded, subscribed, ...   by SyncPolicy::OnRead: check, fetch, nothing, or trust. A training
//                                      lookup may trust a row if the partition has notified the client of
//                                      moved rows since the lookup before (LookupNumbers::answered)
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

  // Later rows are of this table and partition. Tables must be consecutive.
  void Begin(TableCache* cache, uint32_t partition);
  // Adds a row. `line`: its line, or kNoRow; `at`: its index in the read.
  void Key(het::Key key, uint32_t line, uint32_t at);
  // Returns the questions about rows of this table and partition.
  TableRead* asked() { return asked_ != nullptr ? asked_ : asked_ = Add(); }

  // Passes all questions on; the read is done when those about rows are answered.
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
  TableRead* asked_ = nullptr;  // null: no question yet
  SyncPolicy sync_;             // the table's
  bool trusts_ = false;         // subscribed rows of the partition
};

}  // namespace het
