// When a cached row talks to the server: one place for the three decisions of the clock protocol.
// With b the server's ticks that a cached row contains, p its own unsent ticks, g the server's
// clock:
//
//   read   OnRead     is the row to be checked, fetched, or left alone?     g - b <= pull bound of g   (I2)
//   write  PushNow    are the row's unsent ticks to be sent now?
//          MustWait   is the step to wait until pushes are applied?         p <= push bound of b + p   (I1)
//
// Both bounds are those of HET, one number for all rows, or follow the age of the row (wire/bound.h): a young
// row is then read fresh and written through, on both sides, and an old one may be as stale as HET's.
//
// "asked": every read checks every row. "notified": the server remembers what was read and names what has
// moved; then g is that of the answer to the lookup before (client/subscriptions.h).
#pragma once

#include <cstdint>

#include "het_tf/core/cache/pull_rule.h"
#include "het_tf/core/wire/bound.h"

namespace het {

struct SyncPolicy {
  Bound pull = 100;
  Bound push = 100;
  bool subscribes = false;

  using Pull = het::Pull;
  // Returns what a read asks about a valid line. `moved`: its copy is Copy::kMoved. `trusted`: it is
  // subscribed, and the newest notifications are recent; kNotified: the read asks only for the next ones.
  Pull OnRead(bool moved, bool trusted) const { return PullOf(bounds_reads(), moved, subscribes && trusted); }
  // Whether several workers compute what one process would: no read and no push lags behind.
  bool Exact() const { return pull.most == 0 && push.most == 0; }
  // Whether a lookup may begin before the step before it has ended: not at a bound of 0.
  bool MayBeginEarly() const { return pull.most > 0; }

  bool bounds_reads() const { return pull != kUnbounded; }
  bool bounds_pushes() const { return push != kUnbounded; }
  // A row with more unsent ticks than this is pushed at the end of a step. A bound by age limits unsent
  // ticks as it is. An absolute bound of at least kEarlyPush is lowered by one: a push then goes out one
  // step before the bound asks for it, so no step waits, and another worker's read, whose pull bound is as
  // large, lets one such push pass and not none. Below kEarlyPush rows are pushed past the bound: there the
  // more frequent pushes cost more rows than that saves, and at 1 the bound would hold nothing back at all.
  // docs/benchmarks.md has the figures. A row that is pushed past the bound makes its step wait until the
  // server has applied it.
  Bound unsent() const {
    const bool early = push.every == 0 && bounds_pushes() && push.most >= kEarlyPush;
    return early ? Bound(push.most - 1) : push;
  }
  static constexpr int64_t kEarlyPush = 4;

  // Clocks here are the worker's: its base and its own ticks.
  bool PushNow(uint32_t ticks, Clock clock) const { return ticks > unsent().Of(clock); }
  // Limit on a row's unapplied ticks when a step ends. By age, one push may be on its way, so that no step
  // waits for its own.
  int64_t most_unapplied(Clock clock) const { return push.every == 0 ? push.most : push.Of(clock) + 1; }
  // Whether a row that PushNow has just found may be sent after the step, if all earlier pushes are applied.
  bool MayPushLate() const { return !bounds_pushes() || push.every != 0 || push.most >= kEarlyPush; }
  bool MustWait(uint64_t unapplied, Clock clock) const {
    return bounds_pushes() && unapplied > static_cast<uint64_t>(most_unapplied(clock));
  }
};

}  // namespace het
