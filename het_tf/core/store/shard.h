// One table's rows in one partition, the epoch by which caches notice a replacement of all rows, and the
// limits on growth.
//
// A removed row must not come back unnoticed. A cache elsewhere may have a copy at clock b; if the key were
// trained again from clock 0, its clock would pass b and the old copy would look fresh. So a shard remembers
// a *clock floor*, the highest clock of any removed row, and a new row starts more than kBirthGap above it:
// every earlier copy, with all its own updates in flight, is further behind than any bound below kBirthGap
// allows. It starts at a multiple of kBirthGap, so that its clock tells its age (wire/bound.h). The floor is
// saved and, since removals are replicated one by one, equal in every copy of the partition.
//
// Not thread-safe; the partition's owner locks.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "het_tf/core/row/limits.h"
#include "het_tf/core/row/row_store.h"
#include "het_tf/core/row/schema.h"
#include "het_tf/core/store/change_numbers.h"
#include "het_tf/core/wire/bound.h"

namespace het {

// Rows that a sweep removed, by the limit that they exceeded.
struct Swept {
  uint64_t ttl = 0;
  uint64_t min_count = 0;
  uint64_t max_rows = 0;
  uint64_t clients = 0;  // forgotten clients (partition.h)

  uint64_t rows() const { return ttl + min_count + max_rows; }
  Swept& operator+=(const Swept& other);
};

class Shard {
 public:
  // No clock or floor from outside may be larger, so that none overflows.
  static constexpr Clock kMaxClock = Clock{1} << 61;
  // Ticks of one row in one push must be fewer. A row with 1,000 ticks a second reaches it in 12 days without
  // a push.
  static constexpr uint32_t kMaxPushTicks = uint32_t{1} << 30;
  // A row past this takes no push, so that none exceeds kMaxClock.
  static constexpr Clock kLastClock = kMaxClock - kMaxPushTicks;

  Shard(Schema schema, uint64_t epoch, uint64_t hash_seed)
      : schema_(std::move(schema)),
        epoch_(epoch),
        rows_(schema_->stored().words(), hash_seed),
        row_(schema_->stored().exact() ? 0 : schema_->row_floats()) {}

  const TableSchema& schema() const { return *schema_; }
  const Schema& shared_schema() const { return schema_; }
  uint64_t epoch() const { return epoch_; }
  void set_epoch(uint64_t epoch) { epoch_ = epoch; }
  // The rows, as they are stored (row/stored_format.h).
  RowStore& rows() { return rows_; }
  const RowStore& rows() const { return rows_; }
  // The floats of a stored row: value and slots; without `slots` perhaps the value alone. Valid until the
  // next call of Read, Edit or Keep, or, where rows are stored as floats, while the row is.
  const float* Read(const float* stored, bool slots = true) const {
    const StoredFormat& format = schema_->stored();
    if (format.exact()) return stored;
    slots ? format.Read(stored, row_.data()) : format.ReadValue(stored, row_.data());
    return row_.data();
  }
  // The same to be changed; Keep or Set ends the change.
  float* Edit(uint32_t row) { return const_cast<float*>(Read(rows_.data(row))); }
  // Of a push, whose draw is given (PushDraw). The clock must still be the one before it.
  void Keep(uint32_t row, uint64_t push) {
    if (!schema_->stored().exact()) Write(row, RowDraw(push, rows_.meta(row).key, rows_.meta(row).clock));
  }
  // Of a load or an assignment.
  void Set(uint32_t row) {
    if (!schema_->stored().exact()) Write(row, /*draw=*/0);
  }
  // An upper bound on all rows' clocks. Code that raises a row's clock must update it.
  Clock newest() const { return newest_; }
  void RaiseNewest(Clock clock) { newest_ = std::max(newest_, std::min(clock, kMaxClock)); }
  // Returns false if this part has named the table before. `part`: its number in the partition.
  bool NameIn(uint64_t part) { return std::exchange(named_in_, part) != part; }
  const TableLimits& limits() const { return limits_; }
  void set_limits(const TableLimits& limits) { limits_ = limits; }

  // The partition's change that made or cleared the shard: later changes are known row by row.
  uint64_t known_since() const { return known_since_; }
  void set_known_since(uint64_t number) { known_since_ = number; }
  // The last change of each row: call MarkChanged for every row that gets another content.
  const ChangeNumbers& numbers() const { return numbers_; }
  void MarkChanged(uint32_t row, uint64_t number) { numbers_.Set(row, number); }
  // Bytes of rows and their numbers.
  size_t bytes() const { return rows_.bytes() + numbers_.bytes(); }

  // Adds a row with the clock of a new row; its data is uninitialised. As RowStore::Insert otherwise.
  uint32_t Insert(Key key, uint64_t hash);
  // Returns the row of `key`, created if missing with its initial content and the clock of a new row. Throws
  // std::bad_alloc and changes nothing then.
  uint32_t FindOrCreate(Key key, uint64_t hash, bool* created);

  // Gives a row that was assigned the age that its new content has.
  void Renew(uint32_t row, Clock age);

  // Removes a row that a client may have seen. (Use rows().Erase for a row that was just made and never
  // ticked.) Removing the last row frees the memory of all.
  void Remove(uint32_t row);

  Clock clock_floor() const { return clock_floor_; }
  void RaiseFloor(Clock clock);
  // The clock of a row before its first tick.
  Clock birth_clock() const { return clock_floor_ == 0 ? 0 : BornAfter(clock_floor_); }

  // Removes rows past a limit at `now`: looks at `budget` rows, continuing where it stopped, and drops at
  // most `budget` for max_rows, of which each of the table's partitions has one of `shares`. Appends at most
  // 2 * budget keys to *removed, which must have room for them; null: not recorded.
  Swept Sweep(uint32_t now, size_t budget, uint32_t shares, Vector<Key>* removed);

  // Drops all rows; caches notice the new epoch.
  void Clear(uint64_t epoch);

 private:
  void DropRows();
  void Write(uint32_t row, uint64_t draw) { schema_->stored().Write(row_.data(), draw, rows_.data(row)); }
  uint32_t LeastRecentlyUsedOfAFew();

  Schema schema_;
  uint64_t epoch_;  // random, new at load and clear; compared by !=
  RowStore rows_;
  mutable Vector<float> row_;  // of Read and Edit
  ChangeNumbers numbers_;
  uint64_t known_since_ = 0;
  TableLimits limits_;
  Clock clock_floor_ = 0;  // 0: no row was ever removed
  Clock newest_ = 0;
  uint32_t sweep_at_ = 0;
  uint64_t named_in_ = 0;
  uint64_t draws_ = 0;
};

}  // namespace het
