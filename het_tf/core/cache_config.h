// How a worker caches a table, and how stale it may be.
#ifndef HET_TF_CORE_CACHE_CONFIG_H_
#define HET_TF_CORE_CACHE_CONFIG_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "het_tf/core/frame.h"

namespace het {

struct CacheConfig {
  size_t capacity = 1 << 20;      // rows; 0: no row outlives its step
  std::string policy = "lru";     // "lru", "lfu", "light_lfu"
  uint32_t admit_after = 1;       // steps a key must have occurred in before it may stay
  int64_t pull_bound = 100;       // s_pull: foreign ticks that a read may miss; kUnbounded
  int64_t push_bound = 100;       // s_push: own ticks that may be unsent; kUnbounded
  size_t write_back_rows = 4096;  // evicted rows with unsent updates that may wait; not on a device
  std::string device = "cpu";     // whose memory it takes: "cpu", "gpu" (device/device_tables.h)

  bool on_device() const { return device == "gpu"; }
};

}  // namespace het

#endif  // HET_TF_CORE_CACHE_CONFIG_H_
