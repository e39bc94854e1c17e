// The modes of a random schedule. A lot of its own draws each mode, so every two values come together, and
// Modes tells which ones did (schedules_test.cc: EveryPairIsDrawn).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/cpp/testing/world/world_config.h"

namespace het::testing {

// A world of a counting table. One in four is the default of het_tf.Cache; `is_default`: all are.
WorldConfig RandomConfig(uint64_t seed, bool is_default = false);

// What the world plays: (mode, value), in one order for all.
using Modes = std::vector<std::pair<std::string, std::string>>;
Modes ModesOf(const WorldConfig& config);

}  // namespace het::testing
