// How a worker caches a table, and how stale it may be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "het_tf/core/base/status.h"
#include "het_tf/core/cache/staleness.h"
#include "het_tf/core/cache/sync_policy.h"
#include "het_tf/core/row/row_format.h"

namespace het {

// InvalidArgument: not a word of CacheConfig::checks.
Status CheckChecksName(const std::string& checks);

struct CacheConfig {
  size_t capacity = 1 << 20;         // rows; 0: no row outlives its step
  std::string policy = "lru";        // "lru", "lfu", "light_lfu"
  uint32_t admit_after = 1;          // steps a key must have occurred in before it may stay
  Bound pull_bound = 100;            // s_pull: foreign ticks that a read may miss; kUnbounded
  Bound push_bound = 100;            // s_push: own ticks that may be unsent; kUnbounded
  std::optional<int64_t> staleness;  // both bounds follow it, and the number of workers (Follow)
  uint32_t workers = 1;
  size_t write_back_rows = 4096;         // evicted rows with unsent updates that may wait; not on a device
  RowFormat wire = RowFormat::kFloat32;  // how rows and updates travel; not on a device
  // How cached rows stay within pull_bound. "asked": their clocks are sent at every read. "told":
  // the server remembers what this client holds and names what has moved past the bound
  // (store/holdings.h, client/subscriptions.h). "auto": told from a bound of kLeastTold on, where that
  // takes fewer bytes (check_choice.h).
  std::string checks = "asked";
  std::string device = "cpu";  // whose memory it takes: "cpu", "gpu" (device/device_tables.h)

  // Below it the ticks of one more step, by which rows may be older, are much beside the bound.
  static constexpr int64_t kLeastTold = 3;

  // The bounds of a table with this optimizer, where `staleness` is given.
  void Follow(const std::string& optimizer) {
    if (!staleness) return;
    const StalenessBounds bounds = StalenessBounds::Of(optimizer, *staleness, workers);
    pull_bound = bounds.pull;
    push_bound = bounds.push;
  }
  SyncPolicy sync() const {
    // Where nothing is checked, or kept, there is nothing to be told. At a bound of 0 every read asks.
    const bool bounded = pull_bound.most > 0 && pull_bound != kUnbounded && capacity > 0;
    return {pull_bound, push_bound,
            bounded && (checks == "told" || (checks == "auto" && pull_bound.most >= kLeastTold))};
  }
  bool on_device() const { return device == "gpu"; }
};

}  // namespace het
