// What the module does for a replica, in process: hands on what handling a part says that a copy
// needs.
#pragma once

#include <vector>

#include "het_tf/core/store/chunk.h"
#include "het_tf/core/store/partition.h"

namespace het::testing {

// `done` is what handling `frame` came to. False when the copy refuses any of it.
inline bool CopyHandles(Span<const uint8_t> frame, const Handled& done, Partition* copy) {
  const Replication& made = done.replication;
  bool taken = true;
  if (done.applied) {
    Handling how;
    Bytes reply;
    if (made.frame) how.applied_at = made.time;
    const Span<const uint8_t> push(made.push.data(), made.push.size());
    taken = copy->Handle(made.frame ? frame : push, &reply, how).applied;
  }
  for (const Bytes& chunk : made.removals)
    taken = LoadChunk({chunk.data(), chunk.size()}, copy).ok() && taken;
  return taken;
}

}  // namespace het::testing
