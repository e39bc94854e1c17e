// The rings of the keys that this client has named to one partition, by table (wire/named_keys.h).
//
// Keys go in full until the keys of a list are far apart; then the client begins a ring of their table. After
// a failure it forgets all rings (Forget): whether the partition has appended what was in flight is not
// known. While a request is in flight, no more than a ring's size of keys are appended behind it, so that its
// answer can be read: a request beyond has its keys in full, and appends none.
#pragma once

#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "het_tf/core/client/cached_tables.h"
#include "het_tf/core/wire/named_keys.h"
#include "het_tf/core/wire/reply.h"
#include "het_tf/core/wire/request.h"

namespace het {

class ClientRings {
 public:
  // `far`: ClientConfig::far_keys.
  explicit ClientRings(uint64_t far) : far_(far) {}

  // Names the keys of a request that has all its lists. Throws std::bad_alloc; then it must be forgotten.
  void Name(const CachedTables& tables, OutRequest* request);
  // The request was sent. Returns whether it relies on rings that were there before.
  bool Sent(const OutRequest& request);
  // Completes the notified keys of an answer. Returns false if it does not fit its request.
  bool Complete(Reply* reply) const;
  // The request is in flight no longer.
  void Taken(uint32_t request_id);
  void Forget();
  // Whether the partition has accepted a request that relies on rings. Refused too often in a row, it has no
  // room for them, and keys go in full.
  void Accepted(bool accepted) { refused_ = accepted ? 0 : refused_ + 1; }

 private:
  static constexpr uint32_t kMostRefused = 3;

  struct InFlight {
    uint32_t request_id;
    std::vector<std::pair<uint64_t, uint64_t>> appended;  // by table: how many keys its ring had behind it
  };
  // Of the oldest request in flight that says keys of the table; `none`: there is no such request.
  uint64_t OldestAppended(uint64_t table, uint64_t none) const;

  const uint64_t far_;
  std::map<uint64_t, NamedKeys> rings_;
  std::deque<InFlight> in_flight_;
  uint32_t refused_ = 0;
};

}  // namespace het
