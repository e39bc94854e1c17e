#include "het_tf/ext/serving/cc/follow/waiting_versions.h"

#include <algorithm>
#include <utility>

namespace het::follow {

void WaitingVersions::Offer(Version version, std::vector<Position> cut, uint64_t now) {
  const uint64_t number = version.number;
  waiting_.emplace(number, Waiting{std::move(version), std::move(cut), now});
}

bool WaitingVersions::IsReached(const Waiting& waiting, const Reached& rows) {
  const Position& cut = waiting.cut[rows.partition];
  if (rows.position.incarnation == cut.incarnation) return rows.position.number >= cut.number;
  return rows.sent > waiting.offered;
}

std::optional<WaitingVersions::Waiting> WaitingVersions::Take(const std::vector<Reached>& rows) {
  for (auto it = waiting_.end(); it != waiting_.begin();) {
    --it;
    const auto reached = [&](const Reached& row) { return IsReached(it->second, row); };
    if (!std::all_of(rows.begin(), rows.end(), reached)) continue;
    Waiting taken = std::move(it->second);
    waiting_.erase(waiting_.begin(), std::next(it));
    return taken;
  }
  return std::nullopt;
}

std::vector<uint64_t> WaitingVersions::Numbers() const {
  std::vector<uint64_t> numbers;
  for (const auto& [number, waiting] : waiting_) numbers.push_back(number);
  return numbers;
}

}  // namespace het::follow
