// The wire frame: what a client and a partition say to each other, whatever carries it.
//
// A request has up to three parts for every table: *push* (updates), *check* (is my copy still within the
// bound?), *fetch* (give me the row). A reply answers check and fetch, and says what the partition has
// applied. PROTOCOL.md gives the rules; this file gives the bytes. All integers are little-endian; "varint"
// is LEB128.
//
//   request  u32 magic | u8 version | u8 flags | u16 0 | u32 request_id | u32 time
//            u32 partition | u32 partitions | u64 hash_seed | u64 client[2] | u64 seq | u64 after_seq
//            varint tables, then each:
//              u64 table | u64 epoch | varint floats an update, varint pushes | keys | ticks | updates (fp32)
//              varint bound + 1 (0: unbounded), varint checks | keys | clocks
//              varint fetches | keys
//   reply    u32 magic | u8 version | u8 status | u16 0 | u32 request_id | u64 inc | u64 last_seq
//            varint message length | message
//            varint tables, then each:
//              u64 table | u64 epoch | varint floats a row
//              varint refreshed | positions in the request's checks | clocks
//              varint fetches | clocks (0: the row does not exist, and no floats follow for it)
//              rows (fp32): of the refreshed and then of the fetched keys whose clock is not 0
//              varint buckets | staleness histogram of the checks that stayed within the bound
//
// Keys travel as differences, clocks zigzagged. Encoding cannot fail but for memory; decoding trusts nothing.
#ifndef HET_TF_CORE_FRAME_H_
#define HET_TF_CORE_FRAME_H_

#include <cstdint>
#include <string>

#include "het_tf/core/bytes.h"
#include "het_tf/core/row_store.h"
#include "het_tf/core/status.h"

namespace het {

constexpr uint8_t kFrameVersion = 1;
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
};

struct TableRequest {
  uint64_t table = 0;
  uint64_t epoch = 0;
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
  Vector<TableRequest> tables;
};

struct TableReply {
  uint64_t table = 0;
  uint64_t epoch = 0;
  uint32_t row_floats = 0;
  Vector<uint32_t> refreshed;  // positions in check_keys
  Vector<Clock> refreshed_clocks;
  Vector<Clock> fetched_clocks;  // one for each fetch key
  Vector<float> rows;
  Vector<uint64_t> lag_histogram;  // see LagBucket
};

// The rows of a reply in their order: of the refreshed and then of the fetched keys.
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
  uint64_t inc = 0;
  uint64_t last_seq = 0;
  Vector<TableReply> tables;
};

// Histogram of staleness: bucket 0 holds lag 0, bucket i lags in [2^(i-1), 2^i).
inline size_t LagBucket(int64_t lag) {
  return lag <= 0 ? 0 : 64 - static_cast<size_t>(__builtin_clzll(static_cast<uint64_t>(lag)));
}

// `parts`, where given, receives the bytes that each table took; the rest is the frame's head.
void Encode(const Request& request, Bytes* out, Vector<size_t>* parts = nullptr);
void Encode(const Reply& reply, Bytes* out);
// The push part alone: what makes another copy of the partition equal. No checks, no fetches, no after_seq.
void EncodePush(const Request& request, Bytes* out);
// The seq of an encoded request; 0 for what is too short to be one.
uint64_t SeqOf(Span<const uint8_t> frame);
// InvalidArgument for anything that Encode cannot have written. Throws std::bad_alloc, at most in proportion
// to the size of the frame.
Status Decode(Span<const uint8_t> bytes, Request* request);
Status Decode(Span<const uint8_t> bytes, Reply* reply, Vector<size_t>* parts = nullptr);

}  // namespace het

#endif  // HET_TF_CORE_FRAME_H_
