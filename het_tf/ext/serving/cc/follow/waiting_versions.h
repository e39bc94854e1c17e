// Published versions whose rows have not all come yet.
//
// A version's cut names a position of each partition: every row is at least so new when the version's dense
// weights come into force. A partition has *reached* it
//
//   in the same incarnation   when a scan up to the cut's number is complete
//   in another incarnation    when a scan that was asked for after the version was offered is complete. Then
//                             its rows are those of the store after the version was published. A server that
//                             restarted from an older copy may have lost pushes that the cut had: its rows
//                             are then those that the store has, and workers send again what they have kept.
//                             This trusts that a server which answers as a primary is one: one that was
//                             replaced and does not know it yet (a network that is cut in two, until the
//                             cluster's node timeout) also answers.
//
// Only the newest version that is reached comes into force; older ones are skipped.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "het_tf/core/base/status.h"
#include "het_tf/core/store/changes.h"
#include "het_tf/ext/serving/cc/follow/version.h"

namespace het::follow {

// How far a partition's rows are: the position and the time of the request of its last complete scan.
struct Reached {
  uint32_t partition = 0;
  Position position;
  uint64_t sent = 0;  // CLOCK_BOOTTIME in ns; 0: no scan is complete
};

class WaitingVersions {
 public:
  struct Waiting {
    Version version;
    std::vector<Position> cut;
    uint64_t offered = 0;
  };

  // `cut`: the positions of all partitions of the store. `now`: CLOCK_BOOTTIME in ns.
  void Offer(Version version, std::vector<Position> cut, uint64_t now);
  // Removes the newest version that all partitions have reached, with all older ones, and returns it.
  std::optional<Waiting> Take(const std::vector<Reached>& rows);

  void Clear() { waiting_.clear(); }
  // The numbers of the waiting versions, oldest first.
  std::vector<uint64_t> Numbers() const;

 private:
  static bool IsReached(const Waiting& waiting, const Reached& rows);

  std::map<uint64_t, Waiting> waiting_;
};

}  // namespace het::follow
