// What a world (world.h) is made of, and how it is told to people.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "het_tf/core/client/client.h"
#include "tests/cpp/testing/world/faulty_transport.h"

namespace het::testing {

constexpr float kInitial = 2;  // of every value of a counting table

struct WorldConfig {
  uint64_t seed = 1;
  uint32_t workers = 1;
  uint32_t devices = 0;  // the first so many workers keep their caches on a device
  uint32_t partitions = 1;
  uint32_t shards = 0;  // connections that the partitions share; 0: each has its own
  uint32_t tables = 1;
  std::string optimizer = "sgd";
  uint32_t dim = 0;                   // 0: workers + 1
  std::optional<TableLimits> limits;  // rows that go are not the oracle's: Abandon such a world
  float tolerance = 1e-5f;            // of values, with another optimizer than sgd
  float read_tolerance = 0;           // of values that a read returns, where that is more
  CacheConfig cache;
  ClientConfig client;
  Faults faults;
  bool failovers = false;                  // schedules restart partitions, and bring older ones to life
  bool is_default = false;                 // the cache is as het_tf.Cache() has it
  uint32_t age = 0;                        // ticks that rows of the store may have had at first
  bool early = false;                      // schedules begin some lookups early
  size_t most_held = Holdings::kMostHeld;  // rows that a partition remembers as held

  std::string ToString() const;
};

}  // namespace het::testing
