// Optimizers of tests that take any: where steps may depend on a row's age, they do.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "het_tf/core/row/optimizer.h"

namespace het::testing {

inline OptimizerSpec OptimizerOf(const std::string& name) {
  OptimizerSpec spec;
  spec.name = name;
  if (Optimizer::AllParams(spec).count("decay_steps") != 0) spec.params["decay_steps"] = 5;
  return spec;
}

inline std::unique_ptr<Optimizer> MakeOptimizer(const OptimizerSpec& spec, size_t dim) {
  auto made = Optimizer::Create(spec, dim);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? std::move(made.value()) : nullptr;
}

}  // namespace het::testing
