// Rows that partitions tell about (CacheConfig::checks "told", store/holdings.h): a read of them
// asks nothing but "what has moved?", and what has is in the answer.
//
// A line is subscribed (TableCache::subscribed) from the answer that fetched or checked it on, as long
// as it is here and valid, unless an answer says that the partition has forgotten all
// subscriptions. It means: the partition has the row on its list, at a base no higher than the
// line's, and sends it before it answers a read, once it has moved past the bound. So what was
// trusted when a read began is looked at again when its request leaves (Recheck) and when the
// answer has come (Unsubscribed): what is not subscribed then is checked like any other line.
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
  explicit Subscriptions(const CachedTables* tables) : tables_(tables), left_(tables->partitions()) {}

  // Before a request leaves: trusted lines that are not subscribed are checked, or fetched where
  // they are invalid.
  static void Recheck(PartitionRead* read);
  // Asks what has moved, and says which rows have left the cache. The tables of the read are in
  // the request.
  void FillIn(const Session& session, PartitionRead* read, Request* request);

  // The partition has forgotten all subscriptions of this client.
  void Reset(uint32_t partition);
  // Takes the rows of one table that have moved. `rows` stands at the first of them.
  void Take(Session* session, const Reply& reply, const TableReply& answer, TableCache* cache,
            ReplyRows* rows);
  // What of an answered read has to be asked once more, as a read of its own; null: nothing.
  static PartitionReadPtr Unsubscribed(const PartitionRead& read);

  void RemoveTable(uint64_t table);

 private:
  const CachedTables* const tables_;
  // By partition and table: rows that were subscribed and have left, which the partition does not
  // know yet.
  std::vector<std::map<uint64_t, Vector<Key>>> left_;
};

}  // namespace het
