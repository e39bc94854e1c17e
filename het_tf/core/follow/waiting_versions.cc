#include "het_tf/core/follow/waiting_versions.h"

#include <algorithm>
#include <utility>

namespace het::follow {

void WaitingVersions::Offer(Version version, std::vector<Position> cut, uint64_t now) {
  const uint64_t number = version.number;
  waiting_.emplace(number, Waiting{std::move(version), std::move(cut), now});
}

bool WaitingVersions::IsReached(const Waiting& waiting, const std::vector<Reached>& rows) {
  return std::all_of(rows.begin(), rows.end(), [&](const Reached& row) {
    const Position& cut = waiting.cut[row.partition];
    if (row.position.incarnation == cut.incarnation) return row.position.number >= cut.number;
    return row.sent > waiting.offered;
  });
}

std::optional<Version> WaitingVersions::Take(const std::vector<Reached>& rows) {
  for (auto it = waiting_.end(); it != waiting_.begin();) {
    --it;
    if (!IsReached(it->second, rows)) continue;
    Version version = std::move(it->second.version);
    waiting_.erase(waiting_.begin(), std::next(it));
    return version;
  }
  return std::nullopt;
}

std::vector<uint64_t> WaitingVersions::Numbers() const {
  std::vector<uint64_t> numbers;
  for (const auto& [number, waiting] : waiting_) numbers.push_back(number);
  return numbers;
}

}  // namespace het::follow
