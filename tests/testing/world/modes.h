// The modes of a random schedule. Each mode has its own random stream, so all pairs of values occur;
// schedules_test.cc checks this (EveryPairOfModesIsDrawn).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/testing/world/world_config.h"

namespace het::testing {

// A world with a counting table. One in four is the default of het_tf.Cache; with `is_default` all are.
WorldConfig RandomConfig(uint64_t seed, bool is_default = false);

// The modes of a world as (mode, value), always in the same order.
using Modes = std::vector<std::pair<std::string, std::string>>;
Modes ModesOf(const WorldConfig& config);

}  // namespace het::testing
