// Updates that the server was never sent: those of lines, and those of rows that have left the cache (the
// write-back queue).
//
// Rounding. Where rows travel in a smaller format (CacheConfig::wire), a push takes the update
// rounded, and the *remainder* stays: an update of 0 ticks, which the next tick composes onto. So
// a clean line may have an update, too. A row that leaves takes its remainder along and is rounded
// up or down at random, so that the errors are 0 on average. The error of that rounding, and the
// remainder of a clean line, are lost with the line and counted. TakeWhole leaves no remainder.
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
  // Whether TakeWhole has anything to give. An update of zeros is nothing.
  bool Any(uint32_t line);
  // The row and the update of a line will be used soon, for a tick.
  void PrefetchTick(uint32_t line);
  // Gives the update away, for a frame, and keeps the remainder: the base moves on by the ticks,
  // since the row holds them already.
  void TakeUpdate(uint32_t line, Vector<uint32_t>* ticks, Vector<float>* wire);
  // The same, with nothing left behind.
  void TakeWhole(uint32_t line, Vector<uint32_t>* ticks, Vector<float>* wire);
  // Forgets the update; returns its ticks.
  uint32_t Drop(uint32_t line);

  const WriteBackQueue& queue() const { return queue_; }
  float* update(const WriteBackQueue::Queued& queued) { return updates_.data(queued.update); }
  // The line is about to leave: its ticks go to the queue, and a remainder alone is counted as dropped.
  // Returns whether there were ticks. Throws std::bad_alloc with nothing changed.
  bool Leave(uint32_t line);
  // A queued update returns to a line that was just inserted.
  void Restore(uint32_t line, const WriteBackQueue::Queued& queued);
  // A frame's arrays, with room.
  struct QueueTo {
    Vector<Key>* keys;
    Vector<uint32_t>* ticks;
    Vector<float>* wire;
  };
  // Moves every queued update into the arrays of its partition; `whole`: as it is, else rounded.
  void TakeQueue(const Layout& layout, Span<const QueueTo> of_partition, bool whole);
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
  // Adds the part of an update that travels to a frame; returns where.
  float* AppendWire(const float* update, Vector<float>* wire) const;
  // How the last push of a row is rounded, whose rest is lost: by random numbers that depend on the client,
  // the table, the row and the lookup, each mixed before the next enters. Otherwise the errors of several
  // rows, tables or workers are equal, and add up.
  Rounding RoundingOfLast(Key key) const;

  const Schema schema_;
  const uint64_t rounding_;  // the client and the table
  const Cache cache_;
  UpdatePool updates_;
  WriteBackQueue queue_;
};

}  // namespace het
