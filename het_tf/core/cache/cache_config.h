// How a worker caches a table, and how stale it may be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "het_tf/core/base/status.h"
#include "het_tf/core/cache/sync_policy.h"
#include "het_tf/core/row/row_format.h"

namespace het {

// InvalidArgument: not a word of CacheConfig::checks.
Status CheckChecksName(const std::string& checks);

// Rows that get most of the ticks have tighter bounds (store/row_classes.h).
struct HotRows {
  uint32_t rows = 4096;     // of the table that may be hot, of all its partitions together; at least 1
  int64_t pull_bound = 16;  // at most the table's
  int64_t push_bound = 4;   // the same
  // Not 0: the bounds follow the learning rate, for so many workers (hot_bounds.h).
  uint32_t workers = 0;
};

struct CacheConfig {
  size_t capacity = 1 << 20;             // rows; 0: no row outlives its step
  std::string policy = "lru";            // "lru", "lfu", "light_lfu"
  uint32_t admit_after = 1;              // steps a key must have occurred in before it may stay
  int64_t pull_bound = 100;              // s_pull: foreign ticks that a read may miss; kUnbounded
  int64_t push_bound = 100;              // s_push: own ticks that may be unsent; kUnbounded
  size_t write_back_rows = 4096;         // evicted rows with unsent updates that may wait; not on a device
  RowFormat wire = RowFormat::kFloat32;  // how rows and updates travel; not on a device
  // How cached rows stay within pull_bound. "asked": their clocks are sent at every read. "told":
  // the server remembers what this client holds and names what has moved past the bound
  // (store/holdings.h, client/subscriptions.h). "auto": told from a bound of kLeastTold on, where that
  // takes fewer bytes (check_choice.h).
  std::string checks = "asked";
  std::optional<HotRows> hot;  // none: all rows have the bounds above
  std::string device = "cpu";  // whose memory it takes: "cpu", "gpu" (device/device_tables.h)

  // Below it the ticks of one more step, by which rows may be older, are much beside the bound.
  static constexpr int64_t kLeastTold = 3;

  // `tight`: of a row that is hot, or not judged yet.
  SyncPolicy sync(bool tight = false) const {
    const bool is_hot = tight && hot.has_value();
    const int64_t pull = is_hot ? hot->pull_bound : pull_bound;
    // Where nothing is checked, or kept, there is nothing to be told. At a bound of 0 every read asks.
    const bool bounded = pull > 0 && pull != kUnbounded && capacity > 0;
    return {pull, is_hot ? hot->push_bound : push_bound,
            bounded && (checks == "told" || (checks == "auto" && pull >= kLeastTold)),
            hot.has_value() && hot->workers != 0};
  }
  bool on_device() const { return device == "gpu"; }
};

}  // namespace het
