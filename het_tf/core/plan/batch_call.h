// The arguments of a step's calls: tables, the ids of the features, and how to apply their gradients.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "het_tf/core/base/span.h"
#include "het_tf/core/cache/cache_config.h"
#include "het_tf/core/plan/batch_plan.h"
#include "het_tf/core/row/schema.h"

namespace het {

struct TableOptions {
  std::optional<CacheConfig> cache;  // absent: direct

  bool on_device() const { return cache && cache->on_device; }
};

// One table as this process sees it.
struct Table {
  Schema schema;
  TableOptions options;
  // Number of HetApplyGrad calls that changed it: the step of a learning-rate schedule.
  std::atomic<int64_t> applies{0};
  // Number of gradients that were taken and dropped without having been applied (engine/kept_gradients.h).
  std::atomic<int64_t> dropped{0};
  // Number of training lookups whose batch was planned (Window::Plan).
  std::atomic<int64_t> planned{0};
  // The notice that its cache is smaller than a batch was given.
  std::atomic<bool> notified_small{false};

  const std::string& name() const { return schema->spec().name; }
};
using TablePtr = std::shared_ptr<Table>;

// Location of a call's rows and gradients; ids are in host memory. Device memory is used by work on this
// stream, a cudaStream_t.
struct CallMemory {
  bool on_device = false;
  void* stream = nullptr;
};

// Features refer to tables by their index in `tables`.
struct BatchCall {
  Span<const TablePtr> tables;
  Span<const FeatureIds> features;
  uint64_t layer = 0;  // CallSpec::signature: calls of one layer have equal tables and features
  CallMemory memory = {};

  std::vector<uint64_t> TableIds() const {
    std::vector<uint64_t> ids;
    for (const TablePtr& table : tables) ids.push_back(table->schema->id());
    return ids;
  }
};

struct ApplyArgs {
  uint64_t token = 0;                  // of the lookup
  Span<const float* const> gradients;  // for each feature: ids.size() rows of its dim
  Span<const float> learning_rates;    // for each table
  float scale = 1;                     // multiplies every sum, in a tick
  // For each feature, whether its gradient counts. Empty: it counts unless it is all zero.
  Span<const uint8_t> active = {};
};

}  // namespace het
