// The configuration of a world (world.h), and its text for messages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "het_tf/core/client/client.h"
#include "tests/testing/world/faulty_transport.h"

namespace het::testing {

constexpr float kInitial = 2;  // initial value in a counting table

// How workers come to their batches.
//   kNone      each by itself, at any time (schedule.h)
//   kPlanned   from one stream, in lock-step; a pipeline plans the lookups (het_tf.lookahead)
//   kOnDemand  the same, and each worker knows the lookups of all (shard_on_demand)
enum class StreamMode : uint8_t { kNone, kPlanned, kOnDemand };

// What changes rows of the store besides pushes (operator.h).
//   kRows    rows are removed, assigned, swept
//   kTables  tables are cleared, dropped and made again, loaded
enum class Operators : uint8_t { kNone, kRows, kTables };

struct WorldConfig {
  uint64_t seed = 1;
  uint32_t workers = 1;
  uint32_t devices = 0;  // the first `devices` workers have caches on a device
  uint32_t partitions = 1;
  uint32_t shards = 0;  // connections that partitions share; 0: each has its own
  uint32_t tables = 1;
  std::string optimizer = "sgd";
  uint32_t dim = 0;  // 0: workers + 1
  Stored stored = Stored::kFloat32;
  std::optional<TableLimits> limits;  // age removes rows only in Operator::Sweep, or the test says so
  float tolerance = 1e-5f;            // of values, with an optimizer other than sgd
  float read_tolerance = 0;           // of values that a read returns, if larger
  CacheConfig cache;
  ClientConfig client;
  Faults faults;
  bool failovers = false;  // schedules restart partitions, also from older states
  Operators operators = Operators::kNone;
  bool is_default = false;  // the cache is that of het_tf.Cache()
  uint32_t age = 0;         // limit on initial ticks of the store's rows
  bool early = false;       // schedules begin some lookups early
  bool many_keys = false;   // more keys than a bucket of a device has rows
  StreamMode stream = StreamMode::kNone;
  bool summed = false;  // gradients of a stream are summed over the workers (accumulate)
  bool kept = false;    // gradients of a stream are kept, then applied (engine/kept_gradients.h)
  size_t most_held = Subscribers::kMostRows;  // subscriptions that a partition keeps

  std::string ToString() const;
};

}  // namespace het::testing
