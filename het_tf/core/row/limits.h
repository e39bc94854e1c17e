// Limits on a table's growth. They are not part of its identity: two tables that differ only in limits are
// the same table, and declaring it again changes them.
// min_count is a second, shorter ttl, since a row has no room for the time of its birth; max_rows is kept as
// Redis keeps maxmemory, by a sample of rows, which needs no list.
//
// All times are seconds since 1970 on the clock of the rows' owner: the embedded store, or the primary of a
// partition. Copies (replicas, logs) take the owner's times from frames and never read a clock.
#pragma once

#include <cstdint>
#include <functional>

namespace het {

struct TableLimits {
  static constexpr uint32_t kDay = 86400;
  static constexpr uint32_t kMaxCount = 0xffff;  // updates are counted up to this

  uint32_t ttl = 0;       // seconds after its last update until a row is dropped; 0: never
  uint64_t max_rows = 0;  // approximate; of a few rows the least recently used is dropped; 0: no limit
  // A row of fewer updates is dropped min_count_ttl seconds after its last one; 0: never.
  uint32_t min_count = 0;
  uint32_t min_count_ttl = kDay;
  // The time at which these limits were set. No row counts as older, so that a table with a new ttl does not
  // lose its older rows at once.
  uint32_t since = 0;

  bool any() const { return ttl != 0 || max_rows != 0 || min_count != 0; }
  // Ignores `since`.
  bool Same(const TableLimits& other) const {
    return ttl == other.ttl && max_rows == other.max_rows && min_count == other.min_count &&
           min_count_ttl == other.min_count_ttl;
  }
};

// The clock of a store that owns its rows; tests pass their own.
using TimeFn = std::function<uint32_t()>;
uint32_t UnixTime();

}  // namespace het
