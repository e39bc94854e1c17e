// The pushes to one partition that are not durable yet.
//
//   Append ──► unsent, sent ── Acknowledge(seq) ──► applied, kept ── ForgetThrough(seq) ──► gone
//              (After: what it lacks)              (kept_bytes)
//                    ▲                                  │
//                    └────────── Rewind(seq) ◄──────────┘   the partition has lost it
//
// 1. Numbers. Frames have consecutive seq from 1 on, without gaps. A frame is sent again, unchanged, until it
//    is durable; the partition skips applied frames and refuses a gap. Renumber restarts at 1, for a new
//    client id.
// 2. Reading one's own updates. The partition's row of push `seq` lacks every later frame: MergeOnto puts
//    these on top, oldest first.
//
// Cost: After is O(1), MergeOnto O(frames after `seq` * log of a frame's keys), and a frame is sorted once.
// Functions that add throw std::bad_alloc; the log is then unchanged, or has one more empty frame. Not
// thread-safe.
#pragma once

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "het_tf/core/base/alloc.h"
#include "het_tf/core/cache/unsent.h"
#include "het_tf/core/row/row_store.h"
#include "het_tf/core/row/schema.h"

namespace het {

// Updates of rows of one table, with unique keys.
struct TablePush : PackedUpdates {
  Schema schema;
  Vector<Clock> clocks;  // each row's when exported by a device; not for other caches
  uint32_t left = 0;     // number of keys at the end whose rows were evicted; 0 without notified_ack
  size_t sorted = 0;     // if this is the number of keys they are in the order of Sort

  // Orders the rows that stay by their keys, and those that left. Throws std::bad_alloc with nothing changed.
  void Sort();
  // Returns the number of the key's row; kNoRow: none. Sorts first.
  uint32_t Find(Key key);
};

// One numbered push.
struct PushFrame {
  uint64_t seq = 0;
  uint64_t number = 0;        // order among the frames of all of a client's partitions
  uint32_t notified_ack = 0;  // Session::notified() at its creation; 0: reports no evictions
  std::vector<TablePush> tables;

  // Returns the updates of a table, or null.
  TablePush* Of(uint64_t table);
  // The same, created if missing, with room for `rows` more.
  TablePush* Add(const Schema& schema, RowFormat format, size_t rows);
  // Memory.
  size_t bytes() const;
};

class PushLog {
 public:
  const std::deque<PushFrame>& frames() const { return frames_; }
  uint64_t next_seq() const { return next_seq_; }
  // The newest seq that the partition has reported as applied.
  uint64_t applied() const { return applied_; }
  // Frames up to this seq are dropped.
  uint64_t durable() const { return durable_; }
  // Bytes of applied frames that are kept.
  size_t kept_bytes() const { return kept_bytes_; }
  bool unapplied() const { return applied_ + 1 < next_seq_; }
  bool keeps() const { return durable_ < applied_; }

  // Appends an empty frame. Valid until the log changes.
  PushFrame* Append(uint64_t number);
  // Returns the first frame after `seq`, or null.
  PushFrame* After(uint64_t seq);
  // Whether any unapplied frame fulfils `matches`.
  template <typename Fn>
  bool AnyUnapplied(Fn matches) const {
    return std::any_of(frames_.begin() + IndexAfter(applied_), frames_.end(), matches);
  }

  // The partition has applied all frames up to `last_seq`. Returns whether that is news.
  bool Acknowledge(uint64_t last_seq);
  // The partition has lost all frames after `seq`, although it acknowledged them.
  void Rewind(uint64_t seq);
  // Applied frames up to `seq` are durable.
  void ForgetThrough(uint64_t seq);
  // Renumbers the remaining frames from 1, all unapplied.
  void Renumber();
  void Clear() { frames_.clear(); }

  // Puts all frames after `seq` on top of the partition's row of that push; returns their ticks.
  uint64_t MergeOnto(uint64_t table, Key key, uint64_t seq, float* row);
  // Returns the ticks of key in unapplied frames.
  uint64_t UnappliedTicks(uint64_t table, Key key);
  // Removes a table's updates from unapplied frames; returns their ticks. The frames stay.
  uint64_t DropUnapplied(uint64_t table);
  // Removes the table from all frames.
  void RemoveTable(uint64_t table);

 private:
  ptrdiff_t IndexAfter(uint64_t seq) const;
  void SetApplied(uint64_t seq);

  std::deque<PushFrame> frames_;  // the last has next_seq_ - 1
  uint64_t next_seq_ = 1;
  uint64_t applied_ = 0;
  uint64_t durable_ = 0;
  size_t kept_bytes_ = 0;
  Vector<float> update_;  // that is being merged
};

}  // namespace het
