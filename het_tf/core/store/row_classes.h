// Which rows of one table, in one partition, are hot: the few that get most of the ticks, for which
// clients keep tighter bounds (CacheConfig::hot).
//
//   unseen ──a push──► young ──16 ticks or 128 steps──► rare ◄──► hot
//
// A row is judged at a push, by its ticks since it was last judged, once these are 16 or 128 steps of
// the job have passed: one tick in 32 steps makes it hot, less than half of that rare. One that is
// not judged yet counts as tight, like a hot one: were it held back at a client until the looser
// bound, its ticks would not come here to be seen. A rare row loses nothing by that, since it is
// judged before it comes to a bound. At most a share of `rows` is hot: when that is full, the rate
// that it takes rises, and falls again later. Hot rows that are not pushed any more are found by
// looking at all of them every 128 steps.
//
// All of it is soft: not saved, not replicated, and rows that were loaded are unseen
// (docs/adr/0026-two-classes-of-rows.md). What is known of a row is in RowMeta::flags, in the cache
// line that a push touches anyway:
//
//   bit  0 live | 1-2 state | 3-6 ticks | 7-15 since, in units of 8 steps, modulo 512
//
// Not thread-safe; the partition's owner locks.
#pragma once

#include "het_tf/core/row/row_store.h"
#include "het_tf/core/wire/ids.h"

namespace het {

class RowClasses {
 public:
  explicit RowClasses(RowStore* rows) : rows_(rows) {}

  // A client that has two classes asks or pushes. From the first one on, rows are judged.
  //   lookup  the number of its newest training lookup of the table, modulo 256
  //   share   of the rows that may be hot, this partition's
  void See(ClientId client, uint8_t lookup, size_t share);
  bool used() const { return share_ != 0; }

  // A push has brought ticks to a row. Throws nothing: where memory ends, no row becomes hot.
  void Count(uint32_t row, uint32_t ticks) noexcept;
  // Whether the tighter bounds hold for it. kNoRow: they do.
  bool tight(uint32_t row) const {
    return row == kNoRow || ((rows_->meta(row).flags >> kStateAt) & kStates) != kRare;
  }
  bool hot(uint32_t row) const {
    return row != kNoRow && ((rows_->meta(row).flags >> kStateAt) & kStates) == kHot;
  }
  // Rows that are hot; after rows were removed, some of those too, for 128 steps.
  size_t hot() const { return hot_.size(); }
  // For tests: the row is hot, or rare.
  void Set(uint32_t row, bool hot);

 private:
  enum State : uint16_t { kUnseen = 0, kYoung = 1, kRare = 2, kHot = 3 };
  static constexpr int kStateAt = 1;
  static constexpr uint16_t kStates = 3;
  static constexpr int kTicksAt = 3;
  static constexpr uint16_t kTicks = 15;
  static constexpr int kSinceAt = 7;
  static constexpr uint16_t kUnits = 511;

  void Write(uint32_t row, State state, uint32_t ticks) noexcept;
  void WriteSince(uint32_t row) noexcept;
  State Judge(uint32_t row, State before, uint32_t ticks, uint32_t units) noexcept;
  bool MakeHot(uint32_t row) noexcept;
  // Every 128 steps.
  void LookAtHot() noexcept;

  RowStore* const rows_;
  size_t share_ = 0;
  Vector<uint32_t> hot_;  // all that are; others were
  // The steps of the job are those of one client. Another takes its place when it has been silent.
  ClientId counted_;
  uint32_t others_ = 0;  // requests since it was last heard
  uint8_t lookup_ = 0;
  uint32_t steps_ = 0;
  uint32_t looked_at_ = 0;  // the unit in which all hot rows were
  uint32_t turned_away_ = 0;
  uint32_t quarters_ = 1;  // of a row that becomes hot: ticks in 32 steps
};

}  // namespace het
