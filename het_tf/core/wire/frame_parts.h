// The server's side of a frame of several parts.
#ifndef HET_TF_CORE_WIRE_FRAME_PARTS_H_
#define HET_TF_CORE_WIRE_FRAME_PARTS_H_

#include <algorithm>
#include <string>

#include "het_tf/core/wire/frame.h"
#include "het_tf/core/wire/transport.h"

namespace het {

// The answer to a part that no partition has looked at.
inline Reply PartRefusal(PartRef part, FrameStatus status, std::string message) {
  Reply reply;
  reply.partition = part.partition;
  reply.request_id = part.request_id;
  reply.status = status;
  reply.message = std::move(message);
  reply.same_inc = true;  // nobody has said anything about it
  return reply;
}

// Reads a frame part by part. answer(Request*, ReplyWriter*) answers one, in order; what cannot be read is
// refused, with all that comes after it. Throws std::bad_alloc as `answer` does, and with nothing done if
// there is no memory for short answers.
template <typename Answer>
void AnswerParts(Span<const uint8_t> frame, Bytes* out, Answer answer) {
  RequestParts parts;
  const Status opened = parts.Open(frame);
  ReplyWriter replies(std::max<size_t>(1, parts.size()), out);
  if (!opened.ok()) return replies.Add(PartRefusal({}, FrameStatus::kBadFrame, opened.message()));
  Request request;
  for (size_t i = 0; i < parts.size(); ++i) {
    Status read;
    FrameStatus refusal = FrameStatus::kBadFrame;
    try {
      read = parts.Next(&request);
    } catch (const std::bad_alloc&) {
      refusal = FrameStatus::kBusy;
      read = Status(Code::kResourceExhausted, kStoreOutOfMemory);
    }
    if (read.ok()) {
      answer(&request, &replies);
      continue;
    }
    for (; i < parts.size(); ++i) replies.Add(PartRefusal(parts.ref(i), refusal, read.message()));
  }
}

}  // namespace het

#endif  // HET_TF_CORE_WIRE_FRAME_PARTS_H_
