// A partition answers a frame, as its server does.
#pragma once

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

}  // namespace het::testing
