// How far the served rows may be ahead of the dense weights in force: a bound in seconds, without the clock
// of another machine.
//
// A partition's skew is the time for which its rows went on beyond the version's cut: from the moment at
// which the store's rows were those of the cut for the last time, to the newest change that is served.
//
//        cut(v)         first change after it
//   ──┬────┴─────┬───────────┴─────┬─────────────┬──► time
//     scan       scan, start <= cut(v)           a page with rows is taken: `newest`
//                sent: `since`     scan, start > cut(v)
//
// When the store answered a scan with a start up to the cut, it had no more than the cut. So the first change
// after the cut came later than that scan's first request was sent, and the rows of a page are those of the
// store up to the moment when the page is taken: the skew is at most newest - since. An idle partition is
// asked on, with the same start: its `since` moves on, too. The skew of all is that of the worst partition.
//
// A cut of another incarnation than the scans' has the `since` of the version before, which was cut earlier.
// Unknown: no scan is known that began up to the cut, for example after a restart of the follower and until
// the next version.
//
// Memory: 16 bytes for each scan since the cut, at most kMostScans of a partition. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "het_tf/core/store/changes.h"

namespace het::follow {

class Skew {
 public:
  // When more scans come between two versions, the oldest are forgotten, and the bound is a larger one.
  static constexpr size_t kMostScans = 1024;

  // `cut`: of the dense weights in force, by partition; value-initialised: unknown.
  explicit Skew(const std::vector<Position>& cut);

  // A scan that was sent at `sent` (CLOCK_BOOTTIME in ns, as all times here) has begun at `start`.
  void Begun(size_t partition, const Position& start, uint64_t sent);
  // Call it before rows of a page that was taken at `now` are written.
  void Brought(size_t partition, uint64_t now) { parts_[partition].newest = now; }
  // Dense weights with a later cut are in force.
  void Flipped(const std::vector<Position>& cut);
  // Dense weights of an unknown cut are in force.
  void Forget();

  // Returns nanoseconds; absent: unknown.
  std::optional<uint64_t> Bound() const;

 private:
  struct Scan {
    uint64_t number;  // of its start
    uint64_t sent;    // of the last scan with this start
  };
  struct Part {
    Position cut;
    uint64_t incarnation = 0;  // of the scans
    std::deque<Scan> scans;    // the last one up to the cut, and those after it; numbers grow
    uint64_t since = 0;        // 0: unknown
    uint64_t newest = 0;       // 0: no rows have come

    void Advance();
  };

  std::vector<Part> parts_;
};

}  // namespace het::follow
