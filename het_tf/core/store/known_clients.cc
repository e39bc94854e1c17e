#include "het_tf/core/store/known_clients.h"

#include <algorithm>
#include <new>

#include "het_tf/core/store/chunk.h"

namespace het {

uint64_t KnownClients::LastSeq(ClientId client) const {
  const auto it = all_.find(client);
  return it == all_.end() ? 0 : it->second.last_seq;
}

size_t KnownClients::Sweep(uint32_t now, size_t budget, std::vector<Bytes>* removals) {
  budget = std::min(budget, all_.size());
  Vector<ClientId> gone;
  Bytes chunk;
  try {
    gone.reserve(budget);
    chunk.reserve(kChunkHead + budget * sizeof(ClientId));
    if (removals != nullptr) removals->reserve(removals->size() + 1);
  } catch (const std::bad_alloc&) {
    return 0;
  }
  auto client = all_.upper_bound(swept_);
  for (; budget > 0; --budget, ++client) {
    if (client == all_.end()) client = all_.begin();
    const uint32_t time = client->second.time;
    if (now > time && now - time >= kClientSeconds) gone.push_back(client->first);
    swept_ = client->first;
  }
  for (const ClientId& id : gone) all_.erase(id);
  if (gone.empty() || removals == nullptr) return gone.size();
  EncodeForget(Span<const ClientId>(gone.data(), gone.size()), &chunk);
  removals->push_back(std::move(chunk));
  return gone.size();
}

}  // namespace het
