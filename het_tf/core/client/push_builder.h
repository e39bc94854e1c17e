// Makes frames of updates: of rows whose unsent ticks are past the bound (SyncPolicy) or the age
// (UnsentAges), rows that have left the cache, and everything in a flush.
//
// A row's update goes from its line, or from the write-back queue, into a frame in one move, for
// which the room has been made: it is in one place at any time (I5). Throws std::bad_alloc; then
// nothing has moved, or whole parts of what was to move have.
#pragma once

#include <vector>

#include "het_tf/core/client/cached_rows.h"
#include "het_tf/core/client/cached_tables.h"
#include "het_tf/core/client/session.h"

namespace het {

class PushBuilder {
 public:
  PushBuilder(const CachedTables* tables, std::deque<Session>* sessions, size_t max_frame_bytes)
      : tables_(tables), sessions_(sessions), max_frame_bytes_(max_frame_bytes) {}

  // A frame with nothing in it yet.
  PushFrame* NewFrame(uint32_t partition);
  // Frames to come are numbered from here on.
  uint64_t next_frame() const { return next_frame_; }

  // At the end of a step: evicts rows that have no room, and sends the evicted rows, the rows of the step
  // past their push bound, wanted rows past theirs (OthersUse), and rows past their age or nearly: one frame
  // a partition. Lines of `write` may be gone afterwards. `now`: needed if tables limit ages.
  void OfStep(const CachedWrite& write, double now);
  // All rows that have left their cache.
  void Queues() { Queues(/*whole=*/false, nullptr); }
  // All rows that have left their cache, and those past their push bound; `whole`: everything unsent, as it
  // is.
  void All(bool whole);
  // All rows with a tick that has been unsent for the age that their table allows. No line leaves.
  void PastAge(double now);
  // When a tick reaches that age, or earlier; infinity: there is none.
  double age_due() const;
  // Evicts down to the capacity, and sends the queues if one is full.
  void Trim();

  size_t max_frame_bytes() const { return max_frame_bytes_; }
  // Limit on the bytes of a row in a frame.
  static size_t RowBytes(const TableCache& cache);

 private:
  // Of one call, by partition; null: none yet.
  using Frames = std::vector<PushFrame*>;
  using PartitionLines = std::vector<Vector<uint32_t>>;  // by partition

  // The end of a step sends rows that will reach their age within this part of it: they share the step's
  // frames, and the thread between steps (engine/client_driver.h) finds nothing to do.
  static constexpr double kEarly = 0.125;

  // `frame`: made if it is null. `whole`: updates as they are, else rounded (CacheConfig::wire).
  TablePush* Add(uint32_t partition, PushFrame** frame, const TableCache& cache, size_t rows, bool whole);
  // Moves the updates of lines to the frame.
  void Move(TableCache* cache, Span<const uint32_t> lines, uint32_t partition, PushFrame** frame, bool whole,
            uint64_t Counters::*counter);
  void Due(const CachedWrite& write, Frames* frames);
  // Adds the wanted rows that are past their push bound.
  void Wanted(const OthersKeys& wanted, Frames* frames);
  // `frames`: to add them to; null: to new ones.
  void Queues(bool whole, Frames* frames);
  // Adds the lines of all tables that reach their age within `early` of it. Returns whether queued rows do.
  bool Aged(double now, double early, Frames* frames);
  void ForgetAged(double now, double early);
  // `frames`: take the first lines, about max_frame_bytes_ of each partition; null: there are none.
  void PushLines(TableCache* cache, bool whole, const PartitionLines& lines, Frames* frames,
                 uint64_t Counters::*counter);

  struct Keyed {
    Key key;
    uint32_t line;
  };

  const CachedTables* const tables_;
  std::deque<Session>* const sessions_;
  const size_t max_frame_bytes_;
  uint64_t next_frame_ = 1;
  Vector<Keyed> by_key_;  // of Move: in the order of frames
};

}  // namespace het
