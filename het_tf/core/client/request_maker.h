// What sessions want to say, as requests.
#pragma once

#include <vector>

#include "het_tf/core/client/cached_tables.h"
#include "het_tf/core/client/session.h"
#include "het_tf/core/client/subscriptions.h"

namespace het {

class RequestMaker {
 public:
  RequestMaker(const CachedTables* tables, Subscriptions* subscriptions)
      : tables_(tables), subscriptions_(subscriptions) {}

  struct Outgoing {
    Session* session;
    Session::Outgoing what;
  };

  // The request points to updates and questions: both must stay as they are until it is encoded.
  void Make(const Outgoing& sending, const PartitionId& partition, OutRequest* request);
  // Bytes of updates in it and of rows that it surely brings.
  size_t RowBytes(const Session::Outgoing& what) const;
  // Counts a frame of these parts that is sent: `bytes` in all, and `tables` for the tables of each part.
  void Count(const std::vector<Outgoing>& parts, const std::vector<OutRequest>& requests,
             const Vector<TableBytes>& tables, size_t bytes) const;

 private:
  OutTableRequest* TableOf(Session* session, uint64_t table, OutRequest* request) const;

  const CachedTables* const tables_;
  Subscriptions* const subscriptions_;
  uint32_t next_request_id_ = 1;
};

}  // namespace het
