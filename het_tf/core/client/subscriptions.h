// Rows that partitions know to be here (CacheConfig::checks "told", store/holdings.h), so that a lookup
// need not check them.
//
// A line is subscribed (LineMarks::subscribed) from the answer that fetched or checked it on, as long
// as it is here and valid, until an answer names it, which makes it `moved`, or says that the
// partition has forgotten all subscriptions. It means: the partition has the row on its list, at a
// base no higher than the line's, and names it in the next answer once it has moved past the bound.
//
//   lookup n     asks "what has moved?"  ──►  the partition answers: names, and no more
//   lookup n+1   a line that is subscribed was within the bound then: it is read as it is. One that
//                was named is fetched, with what else is missing
//
// So I2 counts from the partition's answer to the lookup before. Where that has not come, or the
// lookup before had no question for the partition, lines are checked like any other (Asker), and I2
// counts from the lookup. Reads without training check, always: nothing counts them.
//
// A question goes with the rows that the same lookup asks of the partition, or else alone, and then
// no lookup waits for its answer.
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

  // Hands over a question that no lookup waits for.
  void Ask(const PartitionReadPtr& question, Session* session);
  // Some are on their way.
  bool asking() const;
  // Asks what has moved, and says which rows have left the cache. The tables of the read are in
  // the request.
  void FillIn(const Session& session, PartitionRead* read, OutRequest* request);

  // What an answer to such a request names, and whether the partition has forgotten this client.
  // Rows that it brings come after this.
  void Take(uint32_t partition, const Reply& reply);

  void RemoveTable(uint64_t table);

 private:
  void Reset(uint32_t partition);

  const CachedTables* const tables_;
  // By partition and table: rows that were subscribed and have left, which the partition does not
  // know yet.
  std::vector<std::map<uint64_t, Vector<Key>>> left_;
  ReadOp questions_;  // that no lookup waits for, as its parts
};

}  // namespace het
