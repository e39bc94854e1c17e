// Rows to which this client is subscribed at their partitions (CacheConfig::checks "notified",
// store/subscribers.h), so that a lookup need not check them.
//
// A line is subscribed (LineMarks::subscribed) from the answer that fetched or checked it, while it is here
// and valid, until a notification names it, which makes it `moved`, or an answer says that the partition has
// dropped all subscriptions. It means: the partition has the row on its list, at a base of at most the
// line's, and names it in the next answer once it has moved past the bound.
//
//   lookup n     asks for notifications  ──►  the partition answers with the moved rows only
//   lookup n+1   reads a subscribed line as it is: it was within the bound then. Fetches a named line, with
//                 the other missing rows
//
// So I2 counts from the partition's answer to the lookup before. If that is missing, or the lookup before did
// not ask the partition, lines are checked like any other (Asker), and I2 counts from the lookup. Reads
// without training always check: they have no numbers.
//
// The question is sent with the rows that the same lookup requests from the partition, or else by itself, and
// then no lookup waits for its answer.
#pragma once

#include <map>
#include <vector>

#include "het_tf/core/client/cached_tables.h"
#include "het_tf/core/client/partition_read.h"
#include "het_tf/core/client/session.h"
#include "het_tf/core/wire/reply.h"
#include "het_tf/core/wire/request.h"

namespace het {

class Subscriptions {
 public:
  explicit Subscriptions(const CachedTables* tables);

  // Passes on a question that no lookup waits for.
  void Ask(const PartitionReadPtr& question, Session* session);
  // Whether such questions are in flight.
  bool asking() const;
  // Asks for notifications, and reports evicted rows. The read's tables must be in the request.
  void FillIn(const Session& session, PartitionRead* read, OutRequest* request);

  // Handles an answer's notifications, or its reset of all subscriptions. Call before its rows are handled.
  void Take(uint32_t partition, const Reply& reply);

  void RemoveTable(uint64_t table);

 private:
  void Reset(uint32_t partition);

  const CachedTables* const tables_;
  // By partition and table: evicted rows whose subscriptions the partition still has.
  std::vector<std::map<uint64_t, Vector<Key>>> left_;
  ReadOp questions_;  // owns the questions that no lookup waits for
};

}  // namespace het
