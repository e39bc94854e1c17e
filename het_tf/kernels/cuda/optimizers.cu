// (Branch k-apply writes this.)
#include "het_tf/kernels/cuda/optimizers.h"

namespace het::dev {
OptimizerView MakeOptimizer(const HetDevTableConfig& config) {
  OptimizerView view = {};
  view.kind = config.optimizer;
  return view;
}
}  // namespace het::dev
