// Updates that the server was never sent: those of lines, and those of rows that have left the cache (the
// write-back queue).
//
// Rounding. Where rows travel in a smaller format (CacheConfig::wire), a push takes the update
// rounded, and the *remainder* stays: an update of 0 ticks, which the next tick composes onto. So
// a clean line may have an update, too. The update of an old row is small beside the row, and is rounded more
// coarsely (Rounding::coarse). A row that leaves takes its remainder along and is rounded
// up or down at random, so that the errors are 0 on average. The error of that rounding, and the
// remainder of a clean line, are lost with the line and counted. A flush takes updates as they are.
//
// A store that keeps rows in 16 or 8 bits rounds each row that a push changes. The line rounds its copy to
// the same numbers, with the remainder on top: nobody else tells it what a store has made of its own ticks.
// It is off by a unit until the next answer where others have pushed the row, or the push comes again from
// another client.
//
// An update is in one place at any time: a line, the queue, or a frame. Each call moves whole updates.
#pragma once

#include "het_tf/core/cache/cache_policy.h"
#include "het_tf/core/cache/counters.h"
#include "het_tf/core/cache/lines.h"
#include "het_tf/core/cache/lookup_numbers.h"
#include "het_tf/core/cache/update_pool.h"
#include "het_tf/core/cache/write_back_queue.h"
#include "het_tf/core/row/schema.h"
#include "het_tf/core/wire/layout.h"

namespace het {

// Updates of rows of one table, as they travel.
struct PackedUpdates {
  RowFormat format = RowFormat::kFloat32;
  uint64_t draw = 0;  // of the push (row/stored_format.h)
  Vector<Key> keys;
  Vector<uint32_t> ticks;
  Bytes rows;               // of wire_floats each
  Vector<uint32_t> begins;  // of each in `rows`, except in kFloat32, whose rows are equally large

  size_t Begin(size_t row) const { return begins.empty() ? row * (rows.size() / keys.size()) : begins[row]; }
};

class Unsent {
 public:
  // The parts of the cache that it uses. `seed`: of the rounding at random.
  struct Cache {
    Lines* lines;
    const CachePolicy* policy;
    const LookupNumbers* numbers;
    Counters* counters;
  };
  Unsent(Schema schema, uint64_t seed, const Cache& cache);

  // The line's update, made if there is none. Throws std::bad_alloc. After this, Lines::AddTick cannot fail.
  float* UpdateOf(uint32_t line) {
    uint32_t& update = cache_.lines->state(line).update;
    if (update == LineState::kNoUpdate) update = updates_.Take();
    return updates_.data(update);
  }
  // Whether it has one: ticks, or a remainder.
  bool has_update(uint32_t line) const { return cache_.lines->state(line).update != LineState::kNoUpdate; }
  // Whether it has ticks, or a remainder that is not zeros.
  bool Any(uint32_t line);
  // The row and the update of a line will be used soon, for a tick.
  void PrefetchTick(uint32_t line);
  // Moves the update to a frame, which must have room for its key and ticks, and keeps the remainder. The
  // base moves on by the ticks, since the row holds them already. Throws std::bad_alloc with nothing changed.
  void TakeUpdate(uint32_t line, PackedUpdates* to);
  // Forgets the update; returns its ticks.
  uint32_t Drop(uint32_t line);

  const WriteBackQueue& queue() const { return queue_; }
  float* update(const WriteBackQueue::Queued& queued) { return updates_.data(queued.update); }
  // The line is about to leave: its ticks go to the queue, and a remainder alone is counted as dropped.
  // Returns whether there were ticks. Throws std::bad_alloc with nothing changed.
  bool Leave(uint32_t line);
  // A queued update returns to a line that was just inserted.
  void Restore(uint32_t line, const WriteBackQueue::Queued& queued);
  // Moves every queued update to its partition's frame, which must have room for keys and ticks. Throws
  // std::bad_alloc with some moved.
  void TakeQueue(const Layout& layout, Span<PackedUpdates* const> of_partition);
  // Forgets queued updates of keys for which drop(key); returns their ticks.
  template <typename Fn>
  uint64_t DropQueued(Fn drop) {
    uint64_t ticks = 0;
    queue_.RemoveIf([&](const WriteBackQueue::Queued& queued) {
      if (!drop(queued.key)) return false;
      ticks += queued.ticks;
      updates_.Give(queued.update);
      return true;
    });
    return ticks;
  }

  // Keys with ticks that are in no frame yet.
  size_t keys() const;
  size_t bytes() const { return updates_.bytes() + queue_.bytes(); }

 private:
  // The least age of a row whose updates are rounded coarsely (docs/adr/core.md, 34).
  static constexpr Clock kCoarseAge = 200;
  static constexpr Clock kLeaves = -1;
  // Adds the part of an update that travels to a frame. `age`: of the row; kLeaves: its remainder is lost.
  // Returns it as the server reads it, until the next call; `wire` itself if nothing is rounded. Throws
  // std::bad_alloc with nothing added.
  const float* Pack(Key key, uint32_t ticks, const float* wire, Clock age, PackedUpdates* to);
  // Rounds the line's copy as the store will, whose clock is `before` then. `rest`: the remainder.
  void RoundAsStored(uint32_t line, const float* rest, Clock before, uint64_t push);

  const Schema schema_;
  const uint64_t rounding_;  // the client and the table
  const Cache cache_;
  UpdatePool updates_;
  WriteBackQueue queue_;
  Bytes packed_;             // of one update
  Vector<float> packed_as_;  // its numbers
};

}  // namespace het
