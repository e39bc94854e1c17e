// Optimizers of tests that take any: where steps may depend on a row's age, they do.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "het_tf/core/row/optimizer.h"
#include "tests/testing/status.h"

namespace het::testing {

inline OptimizerSpec OptimizerOf(const std::string& name) {
  OptimizerSpec spec;
  spec.name = name;
  if (Optimizer::AllParams(spec).count("decay_steps") != 0) spec.params["decay_steps"] = 5;
  return spec;
}

inline std::unique_ptr<Optimizer> MakeOptimizer(const OptimizerSpec& spec, size_t dim) {
  return ValueOf(Optimizer::Create(spec, dim));
}

}  // namespace het::testing
