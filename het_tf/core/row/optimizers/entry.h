// One optimizer's entry for Optimizer::Create: its name, its hyper-parameters and its factory.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "het_tf/core/row/optimizer.h"

namespace het {

// A hyper-parameter with its default; legal are finite values in [low, high], and only 0 and 1 for a flag.
struct Param {
  const char* name;
  double standard;
  double low;
  double high;
  bool flag = false;
};

// Every parameter of the optimizer, validated, with defaults for those that the spec omits.
using Params = std::map<std::string, double>;

struct OptimizerEntry {
  const char* name;
  std::vector<Param> params;
  std::unique_ptr<Optimizer> (*make)(const Params& params, size_t dim);
};

// The largest decay of a moving average: anything closer to 1 is 1 in float32, and 1 - beta is 0.
inline constexpr double kBelowOne = 0.9999999;
// An epsilon is above 0, since a row whose gradients were all zero would divide 0 by 0, and inside float32.
inline constexpr double kTiny = 1e-30;
inline constexpr double kHuge = 1e30;

OptimizerEntry SgdEntry();
OptimizerEntry MomentumEntry();
OptimizerEntry RmspropEntry();
OptimizerEntry AdamEntry();
OptimizerEntry AdagradEntry();
OptimizerEntry RowWiseAdagradEntry();
OptimizerEntry FtrlEntry();

}  // namespace het
