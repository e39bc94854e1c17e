// When a cached row talks to the server: one place for the three decisions of the clock protocol.
// With b the server's ticks that a cached row contains, p its own unsent ticks, g the server's
// clock:
//
//   read   OnRead     is the row to be checked, fetched, or left alone?     g - b <= pull_bound   (I2)
//   write  PushNow    are the row's unsent ticks to be sent now?            p <= push_bound       (I1)
//          MustWait   is the step to wait until pushes are applied?
//
// Today's policies are staleness bounds: "asked", where every read checks every row, and "told",
// where the server remembers what was read and names what has moved; then g is that of the answer to
// the lookup before (client/subscriptions.h).
#pragma once

#include <cstdint>

#include "het_tf/core/wire/ids.h"

namespace het {

struct SyncPolicy {
  int64_t pull_bound = 100;
  int64_t push_bound = 100;
  bool subscribes = false;
  bool early = false;  // pushes go out at every bound as they do from kEarlyPush on

  enum class Pull { kNothing, kCheck, kFetch, kNotified };
  // What a read asks about a cached row that is valid. `moved`: the partition has named it. `trusted`:
  // it did not when it last said what had moved; kNotified: it is to say so again. `fresh`: a prefetch
  // has asked, or trusted it, not too many lookups ago (lookup_numbers.h); it may have moved since.
  Pull OnRead(bool moved, bool trusted, bool fresh) const {
    if (subscribes && trusted) return Pull::kNotified;
    if (fresh && ChecksAhead()) return Pull::kNothing;
    if (moved) return Pull::kFetch;
    return pull_bound == kUnbounded ? Pull::kNothing : Pull::kCheck;
  }
  // Whether a check that a prefetch has made counts for the lookup. At a bound of 0 the lookup
  // asks itself.
  bool ChecksAhead() const { return pull_bound > 0; }

  bool bounds_pushes() const { return push_bound != kUnbounded; }
  // A row with more unsent ticks than this is pushed at the end of a step. From kEarlyPush on that
  // is one less than the push bound: what may be unapplied is then sent one step before the bound
  // asks for it, so no step waits, and another worker's read, whose pull bound is as large, lets
  // one such push pass and not none. Below kEarlyPush rows are pushed past the bound: there the
  // more frequent pushes cost more rows than that saves, and at 1 the bound would hold nothing
  // back at all. docs/benchmarks.md has the figures. A row that is pushed past the bound makes its
  // step wait until the server has applied it; `early` is for bounds that are chosen to wait for none.
  int64_t most_unsent() const {
    const bool at_bound = push_bound >= kEarlyPush || (early && push_bound > 0);
    return push_bound == kUnbounded || !at_bound ? push_bound : push_bound - 1;
  }
  static constexpr int64_t kEarlyPush = 4;

  bool PushNow(uint32_t unsent) const { return unsent > most_unsent(); }
  // `unapplied`: ticks of a row that the server has not said to have applied.
  bool MustWait(uint64_t unapplied) const {
    return bounds_pushes() && unapplied > static_cast<uint64_t>(push_bound);
  }
};

}  // namespace het
