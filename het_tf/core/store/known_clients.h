// The clients whose pushes a partition has applied, and how far: a push that comes twice is applied once.
//
// A client that has not pushed for kClientSeconds is forgotten, so that the workers of every job that ever
// ran do not pile up. One that comes back is answered GAP 0 and begins anew.
#pragma once

#include <map>
#include <vector>

#include "het_tf/core/row/schema.h"
#include "het_tf/core/wire/parts.h"

namespace het {

struct ClientState {
  uint64_t last_seq = 0;  // newest push that was applied; 0: none
  uint32_t time = 0;      // of that push
};
constexpr uint32_t kClientSeconds = 7 * TableLimits::kDay;

class KnownClients {
 public:
  const std::map<ClientId, ClientState>& all() const { return all_; }
  // Newest push that was applied from `client`; 0: none.
  uint64_t LastSeq(ClientId client) const;

  // The state of a client, made where there is none. Throws std::bad_alloc.
  ClientState& At(ClientId client) { return all_[client]; }
  void Forget(ClientId client) { all_.erase(client); }
  void ForgetAll() { all_.clear(); }
  // Looks at `budget` clients, the next in turn, and forgets those that have been silent for too long;
  // answers how many. *removals receives the chunk that makes copies equal. Does nothing when there is no
  // memory for it.
  size_t Sweep(uint32_t now, size_t budget, std::vector<Bytes>* removals);

 private:
  std::map<ClientId, ClientState> all_;
  ClientId swept_;  // the next sweep goes on behind this one
};

}  // namespace het
