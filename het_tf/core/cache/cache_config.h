// A worker's cache of a table, and its allowed staleness. A default-constructed one has the defaults for one
// worker; engine/table_options.h has the users' fields and the rules for missing ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "het_tf/core/base/status.h"
#include "het_tf/core/cache/staleness.h"
#include "het_tf/core/cache/sync_policy.h"
#include "het_tf/core/row/optimizer.h"
#include "het_tf/core/row/row_format.h"

namespace het {

// The order of eviction from a full cache (eviction_policy.h).
enum class Policy : uint8_t { kLru, kLfu };
// "lru", "lfu". InvalidArgument lists them.
Result<Policy> ParsePolicy(const std::string& name);
const char* PolicyName(Policy policy);

// How cached rows stay within the pull bound.
//   kAsked     the client sends their clocks at every read
//   kNotified  the client subscribes to rows, and the server notifies it of rows that have moved past the
//              bound (store/subscribers.h, client/subscriptions.h)
enum class Checks : uint8_t { kAsked, kNotified };
// "asked", "notified". InvalidArgument lists them.
Result<Checks> ParseChecks(const std::string& name);
const char* ChecksName(Checks checks);

struct CacheConfig {
  static constexpr int64_t kStaleness = 30;

  size_t capacity = 1 << 18;  // rows; 0: no row outlives its step. In a layer: this table's equal share
  uint64_t layer = 0;  // tables with one number share layer_bytes (cache_budget.h); 0: a budget of its own
  size_t layer_bytes = 0;  // of all tables of the layer together
  Policy policy = Policy::kLfu;
  Bound pull_bound = kStaleness;  // s_pull: foreign ticks that a read may miss; kUnbounded
  Bound push_bound = kStaleness;  // s_push: own ticks that may be unsent; kUnbounded
  std::optional<double>
      push_max_age;  // limit on seconds that a tick is unsent (unsent_ages.h); not on a device
  std::optional<int64_t> staleness;  // both bounds follow it, and the number of workers (Follow)
  uint32_t workers = 1;
  size_t write_back_rows = 4096;         // evicted rows with unsent updates that may wait; not on a device
  RowFormat wire = RowFormat::kFloat32;  // how rows and updates travel; not on a device
  Checks checks = Checks::kNotified;
  bool on_device = false;  // in the memory of a device (device/device_tables.h)

  // The least pull bound at which notifications are the default: they let a row lack the ticks of one more
  // step, which are many against a lower bound.
  static constexpr int64_t kLeastNotified = 3;

  // Sets the bounds of a table with this optimizer, if `staleness` is given.
  void Follow(const Optimizer& optimizer) {
    if (!staleness) return;
    const StalenessBounds bounds = StalenessBounds::Of(optimizer.decay_steps(), *staleness, workers);
    pull_bound = bounds.pull;
    push_bound = bounds.push;
  }
  SyncPolicy sync() const {
    // Notifications need checks and kept rows. At a bound of 0 every read checks.
    const bool bounded = pull_bound.most > 0 && pull_bound != kUnbounded && capacity > 0;
    return {pull_bound, push_bound, bounded && checks == Checks::kNotified};
  }
};

}  // namespace het
