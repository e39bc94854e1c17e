// A partition answers a frame, as its server does, and passes on the parts that a copy needs.
#pragma once

#include "het_tf/core/store/chunk.h"
#include "het_tf/core/store/partition.h"

namespace het::testing {

// The frame has one part, or is refused.
inline Handled HandleFrame(Partition* partition, Span<const uint8_t> frame, Bytes* reply, Handling how = {}) {
  Handled handled;
  how.lone = true;
  AnswerFrame(frame, reply, [&](Request* request, ReplyWriter* replies) {
    handled = partition->HandlePart(request, replies, how);
  });
  return handled;
}

// `done` is the result of handling `frame`. Returns false if the copy refuses any part.
inline bool CopyHandles(Span<const uint8_t> frame, const Handled& done, Partition* copy) {
  const Replication& made = done.replication;
  bool taken = true;
  if (done.applied) {
    Handling how;
    Bytes reply;
    if (made.frame) how.applied_at = made.time;
    const Span<const uint8_t> push(made.push.data(), made.push.size());
    taken = HandleFrame(copy, made.frame ? frame : push, &reply, how).applied;
  }
  for (const Bytes& chunk : made.removals) taken = LoadChunk(chunk, copy).ok() && taken;
  return taken;
}

}  // namespace het::testing
