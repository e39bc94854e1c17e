#include "het_tf/core/store/client_names.h"

#include <algorithm>
#include <new>

namespace het {

NamedKeys* ClientNames::Find(const ClientId& client, uint64_t table) {
  const auto of = clients_.find(client);
  if (of == clients_.end()) return nullptr;
  of->second.used = ++uses_;
  const auto ring = of->second.rings.find(table);
  return ring == of->second.rings.end() ? nullptr : &ring->second;
}

NamedKeys* ClientNames::Begin(const ClientId& client, uint64_t table, uint32_t size) noexcept {
  try {
    auto own = clients_.try_emplace(client).first;
    own->second.used = ++uses_;
    const auto before = own->second.rings.find(table);
    if (before != own->second.rings.end()) {
      places_ -= before->second.size();
      own->second.rings.erase(before);
    }
    while (places_ + size > kMostPlaces && clients_.size() > 1) {
      Forget(std::min_element(clients_.begin(), clients_.end(),
                              [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
    }
    if (places_ + size > kMostPlaces) return nullptr;
    NamedKeys* const ring = &own->second.rings.try_emplace(table, size, size).first->second;
    places_ += size;
    return ring;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

ClientNames::Clients::iterator ClientNames::Forget(Clients::iterator client) {
  for (const auto& [table, ring] : client->second.rings) places_ -= ring.size();
  return clients_.erase(client);
}

void ClientNames::ForgetSilent(uint32_t now) {
  for (auto client = clients_.begin(); client != clients_.end();) {
    Of& of = client->second;
    if (of.seen != of.used) of.heard = now;
    of.seen = of.used;
    const bool silent = now > of.heard && now - of.heard >= kSilentSeconds;
    client = silent ? Forget(client) : std::next(client);
  }
}

size_t ClientNames::bytes() const {
  constexpr size_t kMapNode = 4 * sizeof(void*);
  size_t sum = 0;
  for (const auto& [client, of] : clients_) {
    sum += sizeof(client) + sizeof(of) + kMapNode;
    for (const auto& [table, ring] : of.rings) sum += sizeof(ring) + kMapNode + ring.bytes();
  }
  return sum;
}

void ClientNames::Clear() noexcept {
  clients_.clear();
  places_ = 0;
}

}  // namespace het
