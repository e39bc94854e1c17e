// The clients whose pushes a partition has applied, and their last pushes: a duplicate is applied once.
//
// A client that has not pushed for kClientSeconds is forgotten, so that the workers of all past jobs do not
// pile up. When it returns it is answered GAP 0 and starts anew.
#pragma once

#include <map>
#include <vector>

#include "het_tf/core/row/schema.h"
#include "het_tf/core/wire/parts.h"

namespace het {

struct ClientState {
  uint64_t last_seq = 0;  // newest applied push; 0: none
  uint32_t time = 0;      // time of that push
};
constexpr uint32_t kClientSeconds = 7 * TableLimits::kDay;

class KnownClients {
 public:
  const std::map<ClientId, ClientState>& all() const { return all_; }
  // Returns the newest push applied from `client`; 0: none.
  uint64_t LastSeq(ClientId client) const;

  // Returns the state of a client, which it creates if missing. Throws std::bad_alloc.
  ClientState& At(ClientId client) { return all_[client]; }
  void Forget(ClientId client) { all_.erase(client); }
  void ForgetAll() { all_.clear(); }
  // Looks at the next `budget` clients, in turn, and forgets those that were silent for too long; returns how
  // many. *removals receives the chunk that makes copies equal. Does nothing without memory for it.
  size_t Sweep(uint32_t now, size_t budget, std::vector<Bytes>* removals);

 private:
  std::map<ClientId, ClientState> all_;
  ClientId swept_;  // the next sweep starts after this one
};

}  // namespace het
