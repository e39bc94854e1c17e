#include "het_tf/core/client/client_rings.h"

#include <algorithm>

namespace het {
namespace {

// The size of a ring: half as many again as the rows of the table that the cache may have of a partition. 0:
// it caches none.
uint32_t RingSize(const CachedTables& tables, uint64_t table) {
  const size_t capacity = tables.at(table).capacity();
  const size_t rows = capacity / tables.layout().OfTable(table).group;
  if (capacity == 0) return 0;
  return static_cast<uint32_t>(std::min<size_t>(16 + rows + rows / 2, NamedKeys::kMostPlaces));
}

// Whether the keys, in full, take more bytes than names.
bool FarApart(Span<const Key> keys, uint64_t far) {
  if (keys.empty()) return false;
  const Key first = keys[0];
  if (keys.size() == 1) return static_cast<uint64_t>(first < 0 ? ~first : first) >= far;
  return (static_cast<uint64_t>(keys[keys.size() - 1]) - static_cast<uint64_t>(first)) / keys.size() >= far;
}

}  // namespace

void ClientRings::Name(const CachedTables& tables, OutRequest* request) {
  for (OutTableRequest& t : request->tables) {
    const Span<const Key> stay(t.push_keys.data(), t.push_keys.size() - t.left);
    auto ring = rings_.find(t.table);
    if (ring == rings_.end()) {
      const uint32_t size = RingSize(tables, t.table);
      const bool far = FarApart(stay, far_) || FarApart(t.fetch_keys, far_);
      if (size == 0 || !far || refused_ >= kMostRefused) continue;
      ring = rings_.try_emplace(t.table, size, 2 * size).first;
      t.anew = true;
    }
    NamedKeys& named = ring->second;
    const uint64_t behind = named.appended() + stay.size() + t.check_keys.size() + t.fetch_keys.size();
    if (behind - OldestAppended(t.table, behind) > named.size()) continue;
    t.ring = named.size();
    t.names.state = named.state();
    NameKeys(named, stay, &t.names.push);
    NameKeys(named, t.check_keys, &t.names.check);
    NameKeys(named, t.fetch_keys, &t.names.fetch);
    NameKeys(named, t.dropped, &t.names.dropped);
    AppendInFull(t, &named);
  }
}

bool ClientRings::Sent(const OutRequest& request) {
  InFlight sent{request.request_id, {}};
  bool relies = false;
  for (const OutTableRequest& t : request.tables) {
    if (t.ring == 0) continue;
    sent.appended.emplace_back(t.table, rings_.at(t.table).appended());
    relies = relies || !t.anew;
  }
  if (!sent.appended.empty()) in_flight_.push_back(std::move(sent));
  return relies;
}

uint64_t ClientRings::OldestAppended(uint64_t table, uint64_t none) const {
  for (const InFlight& request : in_flight_) {
    for (const auto& [of, appended] : request.appended) {
      if (of == table) return appended;
    }
  }
  return none;
}

bool ClientRings::Complete(Reply* reply) const {
  const auto sent = std::find_if(in_flight_.begin(), in_flight_.end(), [reply](const InFlight& request) {
    return request.request_id == reply->request_id;
  });
  for (TableReply& t : reply->tables) {
    if (t.notified_names.empty()) continue;
    if (sent == in_flight_.end()) return false;
    const auto of = std::find_if(sent->appended.begin(), sent->appended.end(),
                                 [&t](const auto& each) { return each.first == t.table; });
    if (of == sent->appended.end() ||
        !CompleteKeys(rings_.at(t.table), of->second, t.notified_names, &t.notified_keys))
      return false;
    t.notified_names.clear();
  }
  return true;
}

void ClientRings::Taken(uint32_t request_id) {
  in_flight_.erase(
      std::remove_if(in_flight_.begin(), in_flight_.end(),
                     [request_id](const InFlight& request) { return request.request_id == request_id; }),
      in_flight_.end());
}

void ClientRings::Forget() {
  rings_.clear();
  in_flight_.clear();
}

}  // namespace het
