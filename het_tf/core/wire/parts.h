// The wire frame: the messages between a client and the partitions of one shard, over any carrier.
//
// A frame is a head and one or more *parts*, one a partition. A request's part has for every table up to
// three lists: *push* (updates), *check* (is my copy still within the bound?), *fetch* (give me the row). A
// reply's part answers check and fetch, and says which pushes the partition has applied. Parts are
// independent: each is done, or refused, on its own. docs/protocol.md ("Clocks and bounds" and what follows)
// gives the rules; this file gives the bytes.
//
// The head has the fields that all parts share, and a field equal to the previous part's is omitted:
// partition and request numbers count up, a push's seq is a difference. [ ] is present only if a bit of the
// preceding flags says so. All integers are little-endian; "varint" is LEB128, "delta" a zigzagged varint
// that is added to the previous part's field.
//
//   request  u32 magic | u8 version | u8 flags | u32 request_id | varint partitions | u64 hash_seed
//            [u64 client[2]] [u32 time] | varint parts
//            then the head of each part:
//              u8 flags | [delta partition] [delta request_id] [delta client] [delta seq] [delta after_seq]
//              [delta notified_ack] [u32 digest]
//            then for each part its tables:
//              u8 flags | [a table that no part has named before:
//                            u64 table | varint floats an update | varint bound + 1 (0: unbounded)
//                            varint every [varint early | varint from: with every > 0] | u8 formats | [varint
//                            block] | varint 2 ring + anew]
//              [varint its number, unless it is the next one]
//              [varint pushes | varint left | keys of the others | keys of those that left | ticks | updates]
//              [varint checks | keys | clocks] [varint fetches | keys] [varint dropped | keys]
//   reply    u32 magic | u8 version | u32 request_id
//            then each part:
//              u8 flags | [delta partition] [delta request_id] [u64 inc] [delta last_seq]
//              [u8 status | varint message length | message] [delta notified]
//              then its tables:
//                u8 flags | [new: u64 table | varint floats a row | u8 format | [varint block]] [varint
//                number] [u64 epoch] [varint refreshed | positions in the request's checks | their clocks
//                less the checked ones (0: the row does not exist)] [varint fetches | clocks (0: the row does
//                not exist, and nothing follows for it)] [varint count | notified keys] rows: of the
//                refreshed and the fetched keys whose clock is not 0 [varint buckets | staleness histogram of
//                the checks that stayed within the bound]
//
// A part with tables states the epochs, its rings, and perhaps the incarnation (inc), that its client knows,
// by a digest of 32 bits: if the partition computes another digest, it does nothing (kEpoch) and answers with
// all of them. An answer has the inc in full unless the request's digest was right, and its last_seq unless
// that is the newest push that the request names. An answer omits tables without content.
//
// With a ring (named_keys.h) the keys of pushes whose rows stay, of checks and fetches, and those dropped
// are: for each its name + 1, or 0; then those with 0. The answer has the notified keys so, if a flag says
// it.
//
// Keys, and positions, ascend in each list, and travel as gaps; these, ticks (0 and 1 change places) and
// clocks less others are Rice codes (base/rice.h), clocks are varints. Encoding fails only for lack of
// memory; decoding trusts nothing.
#pragma once

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "het_tf/core/base/bytes.h"
#include "het_tf/core/base/status.h"
#include "het_tf/core/wire/reply.h"
#include "het_tf/core/wire/request.h"
#include "het_tf/core/wire/table_heads.h"

namespace het {

// Iterates over the parts of a request frame, which must outlive it.
class RequestParts {
 public:
  // Checks the heads: InvalidArgument if Encode cannot have written them. Throws std::bad_alloc.
  Status Open(Span<const uint8_t> frame);
  size_t size() const { return size_; }
  // Whether any part has a push.
  bool pushes() const { return pushes_; }
  // Parts that Next has not returned yet.
  size_t left() const { return size_ - next_; }
  PartRef ref(size_t part) const { return {head(part).partition, head(part).request_id}; }
  // Reads the next part. InvalidArgument, as Open: no part follows then. Throws std::bad_alloc, at most in
  // proportion to the size of the frame, with all but the tables in *request; no part follows then either.
  Status Next(Request* request);

 private:
  struct Head {
    uint32_t partition = UINT32_MAX;
    uint32_t request_id = 0;
    uint64_t client_low = 0;
    uint64_t seq = 0;
    uint64_t after_seq = 0;
    uint32_t digest = 0;
    uint32_t notified_ack = 0;  // or the previous part's
    uint8_t flags = 0;
  };
  const Head& head(size_t part) const { return part == 0 ? first_ : others_[part - 1]; }
  Head ReadPartHead(const Head& before);
  Status ReadTable(TableRequest* t, uint8_t flags);

  Reader reader_{{}};
  Request common_;  // fields shared by all parts
  Head first_;      // a frame of one part needs no memory until its tables
  Vector<Head> others_;
  frame::TableHeads<RequestTable> tables_;
  size_t size_ = 0;
  size_t next_ = 0;
  bool pushes_ = false;
};

// Reads a frame of one part. InvalidArgument as for RequestParts, and for a frame of several parts.
Status Decode(Span<const uint8_t> bytes, Request* request);

// Writes a frame part by part.
class ReplyWriter {
 public:
  // For a frame of `parts` parts. Throws std::bad_alloc unless there is room for them without tables and
  // message.
  ReplyWriter(size_t parts, Bytes* out);
  // Throws std::bad_alloc with nothing written, but never for a part without tables and message.
  void Add(const Reply& part);
  // Returns a reply to fill in, with the memory of the previous one: only that one's tables are left in it.
  Reply& Part();

 private:
  void AddTable(const TableReply& t, FrameStatus status, bool more, Writer* w);

  Bytes* const out_;
  size_t parts_left_;
  Reply part_;
  frame::TableHeads<ReplyTable> tables_;
  uint32_t partition_ = UINT32_MAX;  // the previous part's
  uint32_t request_id_ = 0;
  uint64_t last_seq_ = 0;
  uint32_t notified_ = 0;
};

// Iterates over the parts of a reply frame, which must outlive it.
class ReplyParts {
 public:
  Status Open(Span<const uint8_t> frame);
  bool done() const { return reader_.left() == 0; }
  // Reads the next part. `tables`: as in Encode, for this part; *bytes: size of the part, with the frame's
  // head for the first. InvalidArgument: no part follows then. Throws std::bad_alloc, at most in proportion
  // to the size.
  Status Next(Reply* part, Vector<TableBytes>* tables = nullptr, size_t* bytes = nullptr);

 private:
  Status ReadTable(TableReply* t, FrameStatus status, uint8_t flags, size_t* row_bytes);

  Reader reader_{{}};
  size_t begin_ = 0;  // bytes left before the next part
  frame::TableHeads<ReplyTable> tables_;
  uint32_t partition_ = UINT32_MAX;  // the previous part's
  uint32_t request_id_ = 0;
  uint64_t last_seq_ = 0;
  uint32_t notified_ = 0;
};

// Writes a frame of one part.
void Encode(const Reply& reply, Bytes* out);
Status Decode(Span<const uint8_t> bytes, Reply* reply);

// --- the server's side

// The answer to a part that reaches no partition.
inline Reply PartRefusal(PartRef part, FrameStatus status, std::string message) {
  Reply reply;
  reply.partition = part.partition;
  reply.request_id = part.request_id;
  reply.status = status;
  reply.message = std::move(message);
  reply.same_inc = true;  // it makes no statement about the incarnation
  return reply;
}

// Answers a frame with a malformed head.
inline void RefuseFrame(const Status& why, Bytes* out) {
  ReplyWriter(1, out).Add(PartRefusal({}, FrameStatus::kBadFrame, why.message()));
}

// Answers the parts of an open frame, in order: answer(Request*, ReplyWriter*) answers one. A malformed part
// is refused, with all later parts; the result says why, else kOk. Throws std::bad_alloc as `answer` does,
// and with nothing done if there is no memory for short answers.
template <typename Answer>
FrameStatus AnswerParts(RequestParts* parts, Bytes* out, Answer answer) {
  ReplyWriter replies(parts->size(), out);
  Request request;
  for (size_t i = 0; i < parts->size(); ++i) {
    Status read;
    FrameStatus refusal = FrameStatus::kBadFrame;
    try {
      read = parts->Next(&request);
    } catch (const std::bad_alloc&) {
      refusal = FrameStatus::kBusy;
      read = Status(Code::kResourceExhausted, kStoreOutOfMemory);
    }
    if (read.ok()) {
      answer(&request, &replies);
      continue;
    }
    request = Request();  // frees memory that the answers may need
    for (; i < parts->size(); ++i) replies.Add(PartRefusal(parts->ref(i), refusal, read.message()));
    return refusal;
  }
  return FrameStatus::kOk;
}

// Opens a frame and answers it.
template <typename Answer>
FrameStatus AnswerFrame(Span<const uint8_t> frame, Bytes* out, Answer answer) {
  RequestParts parts;
  const Status opened = parts.Open(frame);
  if (opened.ok()) return AnswerParts(&parts, out, answer);
  RefuseFrame(opened, out);
  return FrameStatus::kBadFrame;
}

}  // namespace het
