// The wire frame: what a client and the partitions of one shard say to each other, whatever carries it.
//
// A frame is a head and one or more *parts*, one a partition. A request's part has for every table up to
// three things: *push* (updates), *check* (is my copy still within the bound?), *fetch* (give me the row). A
// reply's part answers check and fetch, and says what the partition has applied. Parts have nothing to do
// with each other: each is done, or refused, on its own. PROTOCOL.md gives the rules; this file gives the
// bytes.
//
// What all parts have in common stands in the head once, and what a part has in common with the part before
// it takes no bytes at all: the number of the partition and of the request counts on, a push's seq is a
// difference. [ ] is there only if a bit of the flags in front says so. All integers are little-endian;
// "varint" is LEB128, "delta" a zigzagged varint that is added to what the part before had.
//
//   request  u32 magic | u8 version | u8 flags | u32 request_id | varint partitions | u64 hash_seed
//            [u64 client[2]] [u32 time] | varint parts
//            then the head of each part:
//              u8 flags | [delta partition] [delta request_id] [delta client] [delta seq] [delta after_seq]
//              [varint told_ack] [u64 digest]
//            then for each part its tables:
//              u8 flags | [a table that no part has named before:
//                            u64 table | varint floats an update | varint bound + 1 (0: unbounded)
//                            u8 formats | [varint block]]
//              [varint its number, unless it is the next one]
//              [varint pushes | keys | ticks | updates] [varint checks | keys | clocks]
//              [varint fetches | keys] [varint dropped | keys]
//   reply    u32 magic | u8 version | u32 request_id
//            then each part:
//              u8 flags | [delta partition] [delta request_id] [u64 inc] [delta last_seq]
//              [u8 status | varint message length | message] [varint told]
//              then its tables:
//                u8 flags | [new: u64 table | varint floats a row | u8 format | [varint block]] [varint
//                number] [u64 epoch] [varint refreshed | positions in the request's checks | clocks] [varint
//                fetches | clocks (0: the row does not exist, and nothing follows for it)] [varint told |
//                keys | clocks] rows: of the refreshed, the fetched and the told keys whose clock is not 0
//                [varint buckets | staleness histogram of the checks that stayed within the bound]
//
// A part with tables says which epochs it knows of them, and perhaps which life of the partition (inc), by a
// digest of 64 bits: if the partition comes to another, nothing is done (kEpoch) and the answer has it all.
// An answer has the inc in full unless the request's digest had it right.
//
// Keys travel as differences, clocks zigzagged. Encoding cannot fail but for memory; decoding trusts nothing.
#ifndef HET_TF_CORE_WIRE_FRAME_H_
#define HET_TF_CORE_WIRE_FRAME_H_

#include <cstdint>
#include <string>
#include <vector>

#include "het_tf/core/base/bytes.h"
#include "het_tf/core/base/status.h"
#include "het_tf/core/row/row_format.h"
#include "het_tf/core/row/row_store.h"

namespace het {

constexpr uint8_t kFrameVersion = 2;
constexpr int64_t kUnbounded = INT64_MAX;

struct ClientId {
  uint64_t high = 0;
  uint64_t low = 0;
  friend bool operator==(const ClientId& a, const ClientId& b) { return a.high == b.high && a.low == b.low; }
  friend bool operator<(const ClientId& a, const ClientId& b) {
    return a.high != b.high ? a.high < b.high : a.low < b.low;
  }
};

// Which slice of key space: belongs to the store, not to a table; compared in every frame.
struct PartitionId {
  uint32_t index = 0;
  uint32_t count = 1;
  uint64_t hash_seed = 0;
  friend bool operator==(const PartitionId& a, const PartitionId& b) {
    return a.index == b.index && a.count == b.count && a.hash_seed == b.hash_seed;
  }
};

enum class FrameStatus : uint8_t {
  kOk = 0,
  kGap = 1,      // seq or after_seq is ahead of last_seq; nothing was done
  kEpoch = 2,    // a table was loaded or cleared; nothing was done, the reply carries the new epochs
  kNoTable = 3,  // nothing was done; the reply names the tables that are not there
  kWrongPartition = 4,
  kBadFrame = 5,
  kOutOfMemory = 6,  // nothing was applied; last_seq is as it was
  // Of parts in a frame of several: nothing was done, and the answer says nothing of the partition.
  kElsewhere = 7,  // this server does not have it; sent alone, the part is told where it is
  kBusy = 8,       // not now; the message says why
};
constexpr size_t kFrameStatuses = 9;

struct TableRequest {
  uint64_t table = 0;
  uint64_t epoch = 0;  // for Encode; Decode leaves it 0: see Request::digest
  // Of the updates here, and of the rows in the answer. `block`: the table's dim, where a format needs it; it
  // travels only with one that is not kFloat32.
  RowFormat push_format = RowFormat::kFloat32;
  RowFormat row_format = RowFormat::kFloat32;
  uint32_t block = 0;
  // push
  uint32_t update_floats = 0;
  Vector<Key> push_keys;
  Vector<uint32_t> push_ticks;
  Vector<float> push_updates;  // push_keys.size() * update_floats
  // check: refresh keys whose clock at the server is more than `bound` past the given one, or behind it
  int64_t bound = kUnbounded;
  Vector<Key> check_keys;
  Vector<Clock> check_clocks;
  // fetch
  Vector<Key> fetch_keys;
  // told: the partition is to remember the rows of this request's checks and fetches as held, and to forget
  // these.
  bool hold = false;
  Vector<Key> dropped;
};

struct Request {
  uint32_t request_id = 0;
  // Seconds since 1970, set by the owner of the partition when it applies the push: with the push part it
  // goes to the copies, which so agree on when a row was updated. What a client says counts for nothing.
  uint32_t time = 0;
  PartitionId partition;
  ClientId client;
  uint64_t seq = 0;        // 0: no push part
  uint64_t after_seq = 0;  // read only if at least this push of the client has been applied
  uint64_t inc = 0;        // for Encode: the life that the client knows the partition by; 0: it knows none
  bool tell = false;       // the answer is to name the held rows that have moved
  uint32_t told_ack = 0;   // the newest `told` that the client has
  Vector<TableRequest> tables;

  // What Decode found in the place of inc and epochs: EpochDigest of what the client knows.
  uint64_t digest = 0;
  bool knows_inc = false;
};

struct TableReply {
  uint64_t table = 0;
  uint64_t epoch = 0;  // of kEpoch alone; 0: not said
  uint32_t row_floats = 0;
  RowFormat row_format = RowFormat::kFloat32;
  uint32_t block = 0;          // as in a request
  Vector<uint32_t> refreshed;  // positions in check_keys
  Vector<Clock> refreshed_clocks;
  Vector<Clock> fetched_clocks;  // one for each fetch key
  Vector<Key> told_keys;         // held rows that have moved
  Vector<Clock> told_clocks;
  Vector<float> rows;
  // In place of `rows`, for Encode: where each row stands, so that it is copied once. Decode leaves it empty.
  Vector<const float*> stored_rows;
  Vector<uint64_t> lag_histogram;  // see LagBucket
};

// The rows of a reply in their order: of the refreshed, then of the fetched, then of the told keys.
class ReplyRows {
 public:
  explicit ReplyRows(const TableReply& reply) : row_(reply.rows.data()), floats_(reply.row_floats) {}
  // The row of the next key, whose clock this is; null: it does not exist.
  const float* Next(Clock clock) {
    if (clock == 0) return nullptr;
    const float* row = row_;
    row_ += floats_;
    return row;
  }

 private:
  const float* row_;
  size_t floats_;
};

struct Reply {
  FrameStatus status = FrameStatus::kOk;
  std::string message;
  uint32_t request_id = 0;
  uint32_t partition = 0;
  bool same_inc = false;  // the partition's life is the one that the request knew; then inc is 0 here
  uint64_t inc = 0;
  uint64_t last_seq = 0;
  uint32_t told = 0;  // number of this answer among those that told; 0: nobody asked
  bool told_reset = false;
  Vector<TableReply> tables;
};

// Histogram of staleness: bucket 0 holds lag 0, bucket i lags in [2^(i-1), 2^i).
inline size_t LagBucket(int64_t lag) {
  return lag <= 0 ? 0 : 64 - static_cast<size_t>(__builtin_clzll(static_cast<uint64_t>(lag)));
}

// What the tables of a part say about its partition's state; order counts. `inc` 0: nothing about its life.
class EpochDigest {
 public:
  explicit EpochDigest(uint64_t inc);
  void Add(uint64_t table, uint64_t epoch);
  uint64_t value() const { return digest_; }

 private:
  uint64_t digest_;
};

// Bytes that one table of a part took. The rest of a frame is heads.
struct TableBytes {
  size_t all = 0;
  size_t rows = 0;  // of these: updates or rows
};

// --- requests

// A frame of several parts, 65,536 at most. In all of them client.high, partition.count, hash_seed and time
// are the first's. `tables`, where given, receives what each table of each part took, one after the other.
void EncodeParts(Span<const Request> parts, Bytes* out, Vector<TableBytes>* tables = nullptr);
// A frame of one part. One that is a push alone never says an inc: a copy, whose life is another, can take
// the frame as it is.
void Encode(const Request& request, Bytes* out, Vector<TableBytes>* tables = nullptr);
// The push part alone: what makes another copy of the partition equal. No checks, no fetches, no after_seq.
void EncodePush(const Request& request, Bytes* out);
// Whether Encode of it is what EncodePush makes, but for the time.
bool IsPushAlone(const Request& request);

// What a carrier wants to know of a part.
struct PartRef {
  uint32_t partition = 0;
  uint32_t request_id = 0;
};
// Of all parts of a frame; nothing when it is damaged.
std::vector<PartRef> PartsOf(Span<const uint8_t> frame);
// By the frame's head.
bool IsOfManyParts(Span<const uint8_t> frame);
// Whether any part has a push, by the frame's head; false for what is no request.
bool HasPush(Span<const uint8_t> frame);

// The parts of a request frame, one after the other. The frame must outlive it.
class RequestParts {
 public:
  // What heads alone tell: InvalidArgument for what Encode cannot have written. Throws std::bad_alloc.
  Status Open(Span<const uint8_t> frame);
  size_t size() const { return size_; }
  // Parts that Next has not returned yet.
  size_t left() const { return size_ - next_; }
  PartRef ref(size_t part) const { return {head(part).partition, head(part).request_id}; }
  // The next part. InvalidArgument, as Open: then there is no other. Throws std::bad_alloc, at most in
  // proportion to the size of the frame and with all but the tables in *request; there is no other then.
  Status Next(Request* request);

 private:
  struct Head {
    uint32_t partition = UINT32_MAX;
    uint32_t request_id = 0;
    uint64_t client_low = 0;
    uint64_t seq = 0;
    uint64_t after_seq = 0;
    uint64_t digest = 0;
    uint32_t told_ack = 0;
    uint8_t flags = 0;
  };
  // What a frame says of a table once.
  struct Table {
    uint64_t table;
    int64_t bound;
    uint32_t update_floats;
    uint32_t block;
    RowFormat push_format;
    RowFormat row_format;
  };
  const Head& head(size_t part) const { return part == 0 ? first_ : others_[part - 1]; }
  Head ReadHead(const Head& before);
  Status ReadTable(TableRequest* t, uint8_t flags, uint32_t* number);

  Reader reader_{{}};
  Request common_;  // of all parts
  Head first_;      // a frame of one part needs no memory until its tables
  Vector<Head> others_;
  Vector<Table> tables_;
  size_t size_ = 0;
  size_t next_ = 0;
};

// A frame of one part. InvalidArgument as RequestParts, and for a frame of several.
Status Decode(Span<const uint8_t> bytes, Request* request);

// --- replies

// What a frame says of a table once.
struct ReplyTable {
  uint64_t table;
  uint32_t row_floats;
  uint32_t block;
  RowFormat row_format;
};

// Writes a frame part by part.
class ReplyWriter {
 public:
  // Of so many parts. Throws std::bad_alloc unless there is room for as many without tables and message.
  ReplyWriter(size_t parts, Bytes* out);
  // Throws std::bad_alloc with nothing written, and never for a part without tables and message.
  void Add(const Reply& part);

 private:
  void AddTable(const TableReply& t, bool more, uint32_t* number, Writer* w);

  Bytes* const out_;
  size_t parts_left_;
  Vector<ReplyTable> tables_;
  uint32_t partition_ = UINT32_MAX;  // of the part before
  uint32_t request_id_ = 0;
  uint64_t last_seq_ = 0;
};

// The parts of a reply frame. The frame must outlive it.
class ReplyParts {
 public:
  Status Open(Span<const uint8_t> frame);
  bool done() const { return reader_.left() == 0; }
  // The next part. `tables`: as in Encode, of this part alone; *bytes: all that the part took, the frame's
  // head with the first. InvalidArgument: there is no other then. Throws std::bad_alloc, at most in
  // proportion.
  Status Next(Reply* part, Vector<TableBytes>* tables = nullptr, size_t* bytes = nullptr);

 private:
  Status ReadTable(TableReply* t, uint8_t flags, uint32_t* number, size_t* row_bytes);

  Reader reader_{{}};
  size_t begin_ = 0;  // bytes that were left before the next part
  Vector<ReplyTable> tables_;
  uint32_t partition_ = UINT32_MAX;  // of the part before
  uint32_t request_id_ = 0;
  uint64_t last_seq_ = 0;
};

// A frame of one part.
void Encode(const Reply& reply, Bytes* out);
Status Decode(Span<const uint8_t> bytes, Reply* reply);

}  // namespace het

#endif  // HET_TF_CORE_WIRE_FRAME_H_
