#include "het_tf/ext/serving/cc/follow/skew.h"

#include <algorithm>

namespace het::follow {

Skew::Skew(const std::vector<Position>& cut) : parts_(cut.size()) {
  for (size_t i = 0; i < cut.size(); ++i) parts_[i].cut = cut[i];
}

// Takes `since` from the scans up to the cut, and forgets those that no later cut needs.
void Skew::Part::Advance() {
  if (incarnation == cut.incarnation) {
    while (scans.size() > 1 && scans[1].number <= cut.number) scans.pop_front();
    if (!scans.empty() && scans.front().number <= cut.number) since = std::max(since, scans.front().sent);
  }
  while (scans.size() > kMostScans) scans.pop_front();
}

void Skew::Begun(size_t partition, const Position& start, uint64_t sent) {
  Part& part = parts_[partition];
  if (start.incarnation != part.incarnation) part.scans.clear();
  part.incarnation = start.incarnation;
  if (!part.scans.empty() && part.scans.back().number == start.number) {
    part.scans.back().sent = sent;
  } else {
    part.scans.push_back({start.number, sent});
  }
  part.Advance();
}

void Skew::Flipped(const std::vector<Position>& cut) {
  for (size_t i = 0; i < parts_.size(); ++i) {
    parts_[i].cut = cut[i];
    parts_[i].Advance();
  }
}

void Skew::Forget() {
  for (Part& part : parts_) {
    part.cut = Position();
    part.since = 0;
  }
}

std::optional<uint64_t> Skew::Bound() const {
  uint64_t most = 0;
  for (const Part& part : parts_) {
    if (part.newest <= part.since && part.since != 0) continue;
    if (part.since == 0) return std::nullopt;
    most = std::max(most, part.newest - part.since);
  }
  return most;
}

}  // namespace het::follow
