// How far a table may grow. Limits are no part of what a table is: two tables that differ in them alone are
// the same table, and declaring it again changes them. docs/adr/0009 says why they are as they are.
//
// All times are seconds since 1970 as the owner of the truth sees them: the embedded store, or the primary of
// a partition. Copies (replicas, logs) take the owner's times with the frames and never look at a clock.
#pragma once

#include <cstdint>
#include <functional>

namespace het {

struct TableLimits {
  static constexpr uint32_t kDay = 86400;
  static constexpr uint32_t kMaxCount = 0xffff;  // updates are counted so far

  uint32_t ttl = 0;       // a row goes when its last update is so many seconds old; 0: never
  uint64_t max_rows = 0;  // about so many rows: of a few, the least recently used one goes; 0: no limit
  // A row of fewer updates goes when its last one is min_count_ttl seconds old; 0: none does.
  uint32_t min_count = 0;
  uint32_t min_count_ttl = kDay;
  // When these limits were set. To them no row is older: a table that gets a ttl does not lose at once what
  // is older than that.
  uint32_t since = 0;

  bool any() const { return ttl != 0 || max_rows != 0 || min_count != 0; }
  // Since when is not compared.
  bool Same(const TableLimits& other) const {
    return ttl == other.ttl && max_rows == other.max_rows && min_count == other.min_count &&
           min_count_ttl == other.min_count_ttl;
  }
};

// The clock of a store that owns its rows; tests give their own.
using TimeFn = std::function<uint32_t()>;
uint32_t UnixTime();

}  // namespace het
