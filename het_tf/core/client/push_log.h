// The pushes to one partition that are not durable yet.
//
//   Append ──► unsent, sent ── Acknowledge(seq) ──► applied, kept ── ForgetThrough(seq) ──► gone
//              (After: what it lacks)              (kept_bytes)
//                    ▲                                  │
//                    └────────── Rewind(seq) ◄──────────┘   the partition has lost it
//
// 1. Numbers. Frames have consecutive seq from 1 on, without gaps. A frame is sent again,
//    unchanged, until it is durable; the partition skips what it has applied and refuses a gap.
//    Renumber begins again at 1, for a new client id.
// 2. Reading one's own updates. A row as the partition had it after push `seq` lacks every later
//    frame: MergeOnto puts them on top, oldest first.
//
// Cost: After is O(1), MergeOnto O(frames after `seq` * log of a frame's keys). Functions that add
// throw std::bad_alloc; then the log is as it was, or has one empty frame more. Not thread-safe.
#pragma once

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "het_tf/core/base/alloc.h"
#include "het_tf/core/row/row_store.h"
#include "het_tf/core/row/schema.h"

namespace het {

// Updates of rows of one table, each key once.
struct TablePush {
  Schema schema;
  Vector<Key> keys;
  Vector<uint32_t> ticks;
  Vector<float> wire;                       // keys.size() * wire_floats
  Vector<std::pair<Key, uint32_t>> by_key;  // built when Position is first called
  Vector<Clock> clocks{};                   // of each row when it left a device; not of other caches
  uint32_t left = 0;                        // so many keys at the end have left the cache, as of told_ack

  // The position of key, or -1.
  int64_t Position(Key key);
  const float* update(size_t position) const {
    return wire.data() + position * schema->optimizer().wire_floats();
  }
};

// One numbered push.
struct PushFrame {
  uint64_t seq = 0;
  uint64_t number = 0;    // counts the frames of all partitions of a client: which is older
  uint32_t told_ack = 0;  // Session::notified() when it was made; 0: it says nothing of what has left
  std::vector<TablePush> tables;

  // The updates of a table, or null.
  TablePush* Of(uint64_t table);
  // The same, made if there are none, with room for `rows` more.
  TablePush* Add(const Schema& schema, size_t rows);
  // Memory, with by_key built.
  size_t bytes() const;
};

class PushLog {
 public:
  const std::deque<PushFrame>& frames() const { return frames_; }
  uint64_t next_seq() const { return next_seq_; }
  // Newest seq that the partition said it has applied.
  uint64_t applied() const { return applied_; }
  // Frames up to here are forgotten.
  uint64_t durable() const { return durable_; }
  // Of frames that are applied and not forgotten.
  size_t kept_bytes() const { return kept_bytes_; }
  bool unapplied() const { return applied_ + 1 < next_seq_; }
  bool keeps() const { return durable_ < applied_; }

  // A new frame, empty. Good until the log next changes.
  PushFrame* Append(uint64_t number);
  // The first frame after `seq`, or null.
  const PushFrame* After(uint64_t seq) const;
  // Whether any frame that is not applied fulfils `matches`.
  template <typename Fn>
  bool AnyUnapplied(Fn matches) const {
    return std::any_of(frames_.begin() + IndexAfter(applied_), frames_.end(), matches);
  }

  // The partition has applied everything up to `last_seq`. True: that is more than it was known to
  // have.
  bool Acknowledge(uint64_t last_seq);
  // The partition has applied nothing after `seq`, although it said so.
  void Rewind(uint64_t seq);
  // Frames up to `seq`, which are applied, are durable.
  void ForgetThrough(uint64_t seq);
  // Frames that are left are numbered from 1, and none is applied.
  void Renumber();
  void Clear() { frames_.clear(); }

  // Puts all frames after `seq` on top of a row as the partition had it then; returns their ticks.
  uint64_t MergeOnto(uint64_t table, Key key, uint64_t seq, float* row);
  // Ticks of key in frames that are not applied.
  uint64_t UnappliedTicks(uint64_t table, Key key);
  // Updates of a table in frames that are not applied are taken out; returns their ticks. The
  // frames stay.
  uint64_t DropUnapplied(uint64_t table);
  // Nothing of the table is left in any frame.
  void RemoveTable(uint64_t table);

 private:
  ptrdiff_t IndexAfter(uint64_t seq) const;
  void SetApplied(uint64_t seq);

  std::deque<PushFrame> frames_;  // the last has next_seq_ - 1
  uint64_t next_seq_ = 1;
  uint64_t applied_ = 0;
  uint64_t durable_ = 0;
  size_t kept_bytes_ = 0;
};

}  // namespace het
