// One table's rows in one partition: the rows, the epoch by which caches notice that they were exchanged, and
// the limits that keep them from growing for ever.
//
// A row that goes must not come back as if it had never gone. A cache elsewhere may hold a copy at
// clock b; were the key trained again from clock 0, its clock would pass b unnoticed and the old
// copy look fresh. So a shard remembers a *clock floor*, the highest clock of any row that was
// removed, and a row that is made afterwards starts more than kBirthGap above it: every copy from
// before, with all own updates that were on their way, is further behind than any bound below kBirthGap
// allows. It starts at a multiple of kBirthGap, so that its clock says its age (wire/bound.h). The floor is
// saved and, since removals are replicated one by one, equal in every copy of the partition.
//
// Not thread-safe; the partition's owner locks.
#pragma once

#include <algorithm>
#include <utility>

#include "het_tf/core/row/limits.h"
#include "het_tf/core/row/row_store.h"
#include "het_tf/core/row/schema.h"
#include "het_tf/core/wire/bound.h"

namespace het {

// Rows that a sweep removed, by the limit that they had passed.
struct Swept {
  uint64_t ttl = 0;
  uint64_t min_count = 0;
  uint64_t max_rows = 0;
  uint64_t clients = 0;  // and clients that were forgotten (partition.h)

  uint64_t rows() const { return ttl + min_count + max_rows; }
  Swept& operator+=(const Swept& other);
};

class Shard {
 public:
  // No clock and no floor that is read from outside is larger, so that none overflows.
  static constexpr Clock kMaxClock = Clock{1} << 61;
  // Of one row in one push: fewer. A row that is ticked 1,000 times a second comes to it in 12 days without
  // a push.
  static constexpr uint32_t kMaxPushTicks = uint32_t{1} << 30;
  // A row past this takes no push: none brings it past kMaxClock.
  static constexpr Clock kLastClock = kMaxClock - kMaxPushTicks;

  Shard(Schema schema, uint64_t epoch, uint64_t hash_seed)
      : schema_(std::move(schema)), epoch_(epoch), rows_(schema_->row_floats(), hash_seed) {}

  const TableSchema& schema() const { return *schema_; }
  const Schema& shared_schema() const { return schema_; }
  uint64_t epoch() const { return epoch_; }
  void set_epoch(uint64_t epoch) { epoch_ = epoch; }
  RowStore& rows() { return rows_; }
  const RowStore& rows() const { return rows_; }
  // No row's clock is past it. Whoever brings rows further says so.
  Clock newest() const { return newest_; }
  void RaiseNewest(Clock clock) { newest_ = std::max(newest_, std::min(clock, kMaxClock)); }
  // False: a part has named the table before. `part`: its number, of all that the partition answers.
  bool NameIn(uint64_t part) { return std::exchange(named_in_, part) != part; }
  const TableLimits& limits() const { return limits_; }
  void set_limits(const TableLimits& limits) { limits_ = limits; }

  // The row of `key`, created with its initial content and the clock of a new row if there is none.
  // Throws std::bad_alloc and changes nothing then.
  uint32_t FindOrCreate(Key key, uint64_t hash, bool* created);

  // A row that somebody may have seen goes. (One that was made a moment ago and never ticked is
  // taken back by rows().Erase.) The last one gives the memory of all back.
  void Remove(uint32_t row);

  Clock clock_floor() const { return clock_floor_; }
  void RaiseFloor(Clock clock);
  // Of a row before its first tick.
  Clock birth_clock() const { return clock_floor_ == 0 ? 0 : (clock_floor_ / kBirthGap + 2) * kBirthGap; }

  // Removes rows that have passed a limit at `now`: looks at `budget` rows, going on where it
  // stopped, and drops at most `budget` for max_rows, of which each of the table's partitions holds one of
  // `shares`. At most 2 * budget keys are appended to *removed, which has room for them; null:
  // nobody wants to know.
  Swept Sweep(uint32_t now, size_t budget, uint32_t shares, Vector<Key>* removed);

  // Drops all rows; caches notice by the new epoch.
  void Clear(uint64_t epoch);

 private:
  uint32_t LeastRecentlyUsedOfAFew();

  Schema schema_;
  uint64_t epoch_;  // random, new at load and clear; compared by !=
  RowStore rows_;
  TableLimits limits_;
  Clock clock_floor_ = 0;  // 0: no row was ever removed
  Clock newest_ = 0;
  uint32_t sweep_at_ = 0;
  uint64_t named_in_ = 0;
  uint64_t draws_ = 0;
};

}  // namespace het
