// What becomes a frame, and when: rows whose unsent ticks are past the bound (SyncPolicy), rows
// that have left the cache, everything in a flush, and updates that left a device.
//
// A row's update goes from its line, or from the write-back queue, into a frame in one move, for
// which the room has been made: it is in one place at any time (I5). Throws std::bad_alloc; then
// nothing has moved, or whole parts of what was to move have.
#pragma once

#include <vector>

#include "het_tf/core/client/cached_rows.h"
#include "het_tf/core/client/cached_tables.h"
#include "het_tf/core/client/device_rows.h"
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
  // past their push bound, and wanted rows past theirs (OthersUse): one frame a partition. Lines of `write`
  // may be gone afterwards.
  void OfStep(const CachedWrite& write);
  // All rows that have left their cache.
  void Queues() { Queues(/*whole=*/false, nullptr); }
  // Everything that was never sent.
  void Everything();
  // All rows that are past their push bound, and all that have left their cache.
  void PastBound();
  // Evicts down to the capacity, and sends the queues if one is full.
  void Trim();
  // Updates that left a device. Throws with nothing taken.
  void OfDevice(const DevicePush& push);

 private:
  // What a push of a device makes of one partition.
  struct DeviceFrames {
    std::vector<PushFrame> frames;
    size_t bytes = 0;  // of the last one's rows
  };

  // Of one call, by partition; null: none yet.
  using Frames = std::vector<PushFrame*>;

  TablePush* Add(uint32_t partition, PushFrame** frame, const TableCache& cache, size_t rows);
  void Due(const CachedWrite& write, Frames* frames);
  // Adds the wanted rows that are past their push bound.
  void Wanted(const OthersKeys& wanted, Frames* frames);
  // `whole`: as they are, else rounded (CacheConfig::wire). `frames`: to add them to; null: to new ones.
  void Queues(bool whole, Frames* frames);
  // Lines for which any(line); `whole`: as they are.
  template <typename Fn>
  void PushLines(TableCache* cache, bool whole, Fn any);
  void Sort(const DevicePush::Part& part, const TableCache& cache, Vector<DeviceFrames>* made) const;

  const CachedTables* const tables_;
  std::deque<Session>* const sessions_;
  const size_t max_frame_bytes_;
  uint64_t next_frame_ = 1;
};

}  // namespace het
