// A client's requests: one Request for each partition, encoded into one frame for all that share a server.
//
// For every table a request has up to three things: *push* (updates), *check* (is my copy still
// within the bound?) and *fetch* (give me the row). Keys ascend in each list, and a push has two: of rows
// that the client keeps, and of those that have left it. docs/protocol.md gives the rules, parts.h the bytes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "het_tf/core/base/bytes.h"
#include "het_tf/core/base/span.h"
#include "het_tf/core/row/row_format.h"
#include "het_tf/core/wire/bound.h"
#include "het_tf/core/wire/ids.h"
#include "het_tf/core/wire/named_keys.h"
#include "het_tf/core/wire/out_frame.h"

namespace het {

// The facts about a table that a frame has once (table_heads.h).
struct RequestTable {
  uint64_t table = 0;
  // Of the updates here, and of the rows in the answer. `block`: the table's dim, where a format
  // needs it; it travels only with one that is not kFloat32.
  RowFormat push_format = RowFormat::kFloat32;
  RowFormat row_format = RowFormat::kFloat32;
  uint32_t block = 0;
  uint32_t update_floats = 0;
  // of a check: refresh keys whose clock at the server is further past the given one than `bound` allows, or
  // behind it
  Bound bound;
  // The size of the ring by which lists name keys (named_keys.h); 0: there is none, and all lists have keys
  // in full. `anew`: the client begins a ring with this part.
  uint32_t ring = 0;
  bool anew = false;

  friend bool operator==(const RequestTable& a, const RequestTable& b) {
    return a.table == b.table && a.update_floats == b.update_floats && a.bound == b.bound &&
           a.push_format == b.push_format && a.row_format == b.row_format && a.block == b.block &&
           a.ring == b.ring && a.anew == b.anew;
  }
};

// The names of keys: of the pushes whose rows stay, the checks, the fetches and the dropped. Encode takes all
// keys, too; Decode gives those that have no name, until CompleteKeys.
struct ListNames {
  uint64_t state = 0;  // of the ring; for Encode, as TableRequest::epoch
  Vector<uint32_t> push;
  Vector<uint32_t> check;
  Vector<uint32_t> fetch;
  Vector<uint32_t> dropped;

  // Leaves the memory to the next part.
  void Clear() {
    state = 0;
    for (Vector<uint32_t>* list : {&push, &check, &fetch, &dropped}) list->clear();
  }
};

// `List`: Vector in what is decoded or made by hand; ConstSpan in what a client sends: its lists are encoded
// from where they are.
template <template <typename> class List>
struct TableRequestOf : RequestTable {
  uint64_t epoch = 0;  // for Encode; Decode leaves it 0: see Request::digest
  ListNames names;     // with a ring
  // push
  List<Key> push_keys;
  List<uint32_t> push_ticks;
  List<float> push_updates;  // push_keys.size() * update_floats
  // The same as they travel, for Encode, which then ignores `push_updates`. From Decode: bytes of the frame.
  Span<const uint8_t> packed_updates;
  // Number of pushes at the end whose rows the client has evicted: with Request::notified_ack the partition
  // ends their subscriptions, as of then.
  uint32_t left = 0;
  // check
  List<Key> check_keys;
  List<Clock> check_clocks;
  // fetch
  List<Key> fetch_keys;
  // The client subscribes to the rows of the checks and fetches of this part, and drops its subscriptions to
  // `dropped`.
  bool subscribe = false;
  Vector<Key> dropped;

  // Also before CompleteKeys.
  size_t pushes() const { return std::max(push_keys.size(), names.push.size() + left); }
  size_t fetches() const { return std::max(fetch_keys.size(), names.fetch.size()); }
  size_t drops() const { return std::max(dropped.size(), names.dropped.size()); }

  // Empties the lists, whose memory the next part uses again, and forgets the epoch; the next part
  // writes all the rest.
  void Clear() {
    epoch = 0;
    names.Clear();
    for (Vector<Key>* keys : {&push_keys, &check_keys, &fetch_keys, &dropped}) keys->clear();
    push_ticks.clear();
    push_updates.clear();
    packed_updates = {};
    check_clocks.clear();
  }
};

template <typename T>
using ConstSpan = Span<const T>;

template <template <typename> class List>
struct RequestOf {
  uint32_t request_id = 0;
  // Seconds since 1970, set by the owner of the partition when it applies the push. The copies get it with
  // the push part, and so agree on the time of an update. A client's value is ignored.
  uint32_t time = 0;
  PartitionId partition;
  ClientId client;
  uint64_t seq = 0;           // 0: no push part
  uint64_t after_seq = 0;     // read only if at least this push of the client has been applied
  uint64_t inc = 0;           // for Encode: the incarnation that the client knows; 0: none
  uint32_t notified_ack = 0;  // the newest Reply::notified that the client has; 0: none
  Vector<TableRequestOf<List>> tables;

  // From Decode, in place of inc and epochs: the EpochDigest of those that the client knows.
  uint32_t digest = 0;
  bool knows_inc = false;

  // Whether the answer must name the subscribed rows that have moved.
  bool subscribes() const {
    return std::any_of(tables.begin(), tables.end(),
                       [](const TableRequestOf<List>& t) { return t.subscribe; });
  }
  // The newest push that it names: its own, or the one that must be applied before rows are read.
  uint64_t newest_seq() const { return std::max(seq, after_seq); }
};

// Appends the keys that pushes, checks and fetches have in full to the table's ring. Both sides must do it
// after all names of the part were looked up.
template <template <typename> class List>
void AppendInFull(const TableRequestOf<List>& t, NamedKeys* ring) {
  const auto append = [ring](const Vector<uint32_t>& names, const List<Key>& keys) {
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] == 0) ring->Append(keys[i]);
    }
  };
  append(t.names.push, t.push_keys);
  append(t.names.check, t.check_keys);
  append(t.names.fetch, t.fetch_keys);
}

using TableRequest = TableRequestOf<Vector>;
using Request = RequestOf<Vector>;
using OutTableRequest = TableRequestOf<ConstSpan>;
using OutRequest = RequestOf<ConstSpan>;

// A digest of the epochs of a part's tables, in order, of the rings that their lists name keys by, and of the
// partition's incarnation; `inc` 0: without it. Another state has an equal digest once in 2^32 requests, and
// each request has another digest.
class EpochDigest {
 public:
  explicit EpochDigest(uint64_t inc);
  void Add(uint64_t table, uint64_t epoch);
  // `state`: of the table's ring.
  void AddNames(uint64_t state);
  uint32_t value(uint32_t request_id) const;

 private:
  uint64_t digest_;
};

// Bytes that one table of a part took. The rest of a frame is heads.
struct TableBytes {
  size_t all = 0;
  size_t rows = 0;  // of these: updates or rows
};

// Encodes a frame of several parts, 65,536 at most. In all of them client.high, partition.count,
// hash_seed and time are the first's. `tables`, where given, receives what each table of each part
// took, one after the other.
void EncodeParts(Span<const Request> parts, Bytes* out, Vector<TableBytes>* tables = nullptr);
// The same with the facts that a carrier needs. The frame's bytes take the memory of `buffer`.
OutFrame EncodeFrame(Span<const OutRequest> parts, Bytes buffer = {}, Vector<TableBytes>* tables = nullptr);
OutFrame EncodeFrame(Span<const Request> parts, Bytes buffer = {}, Vector<TableBytes>* tables = nullptr);
// Encodes a frame of one part. One that is a push alone never says an inc: a copy, whose
// incarnation is another, can take the frame as it is.
void Encode(const Request& request, Bytes* out, Vector<TableBytes>* tables = nullptr);
// Encodes the push alone: what makes another copy of the partition equal. No checks, no fetches, no
// after_seq.
void EncodePush(const Request& request, Bytes* out);
// Whether Encode makes of it what EncodePush makes, but for the time.
bool IsPushAlone(const Request& request);

}  // namespace het
