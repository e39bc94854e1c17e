// The rows of a cache: a RowStore whose rows (lines) also contain ticks of this worker.
//
//   clock of the row here  =  base (ticks that the server has, or that are in a frame to it)
//                           + pending (ticks that are in no frame yet)
//
// A line is in one of these states, and moves along the arrows:
//
//           Add                 AddTick                  Unsent::TakeUpdate (pushed)
//   (absent) ────► clean (p = 0) ─────► dirty (p > 0, has an update) ─────► clean
//                    │ evicted              │ evicted
//                    ▼                      ▼
//                 (absent)        WriteBackQueue ──► pushed by the next write, or Add + Unsent::Restore
//
// Cost: a line is its row, 24 bytes of meta, 16 bytes of state, 5 to 9 of index, and 8 or 9 of
// the eviction policy; a dirty one, or one with a remainder, also its update, as wide as the row.
#pragma once

#include <cstdint>

#include "het_tf/core/base/alloc.h"
#include "het_tf/core/row/row_store.h"

namespace het {

// Whether a line's copy of its row may be read (line_marks.h).
enum class Copy : uint8_t { kChecked, kSubscribed, kFollowed, kMoved, kInvalid };

// The state of a line besides its row. All parts of the cache share one record, so that a hit reads one cache
// line of memory.
struct LineState {
  static constexpr uint32_t kNoUpdate = 0xffffffffu;

  uint32_t pending = 0;
  uint32_t update = kNoUpdate;  // Unsent's
  uint32_t held_until = 0;      // this and the next members are LineMarks'
  Copy copy = Copy::kChecked;
  bool transient = false;
};
static_assert(sizeof(LineState) == 16);

class Lines : public RowStore {
 public:
  static constexpr size_t Bytes(size_t row_floats) { return row_floats * sizeof(float) + 58; }
  size_t line_bytes() const { return Bytes(row_floats()); }

  using RowStore::RowStore;

  // Adds a clean line with this base; the caller fills in the row. Throws std::bad_alloc.
  uint32_t Add(Key key, uint64_t hash, Clock base);
  using RowStore::Erase;

  Clock& base(uint32_t line) { return meta(line).clock; }
  uint32_t pending(uint32_t line) const { return states_[line].pending; }
  Clock clock(uint32_t line) const { return meta(line).clock + pending(line); }
  // The line must have an update, so that this cannot fail.
  void AddTick(uint32_t line) { ++states_[line].pending; }

  LineState& state(uint32_t line) { return states_[line]; }
  const LineState& state(uint32_t line) const { return states_[line]; }
  // Prefetches a line's state, in loops over lines.
  static constexpr size_t kAhead = 12;  // prefetch distance in lines
  void PrefetchState(uint32_t line) const { __builtin_prefetch(&states_[line], 1); }
  // Calls fn(line) for every line; fn may remove it.
  template <typename Fn>
  void ForEach(Fn fn) const {
    for (uint32_t line = 0; line < end(); ++line) {
      if (live(line)) fn(line);
    }
  }
  size_t bytes() const { return RowStore::bytes() + states_.capacity() * sizeof(LineState); }

 private:
  using RowStore::Clear;
  using RowStore::Insert;

  Vector<LineState> states_;
};

inline uint32_t Lines::Add(Key key, uint64_t hash, Clock base) {
  const uint32_t line = Insert(key, hash);
  try {
    if (line >= states_.size()) states_.resize(line + line / 2 + 16);
  } catch (...) {
    Erase(line);
    throw;
  }
  states_[line] = LineState();
  meta(line).clock = base;
  return line;
}

}  // namespace het
