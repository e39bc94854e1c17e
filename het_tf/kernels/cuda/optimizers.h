// Optimizers as kernels see them. (Interface; branch k-apply writes what is behind it.)
#ifndef HET_TF_KERNELS_CUDA_OPTIMIZERS_H_
#define HET_TF_KERNELS_CUDA_OPTIMIZERS_H_

#include "het_tf/kernels/cuda/dev_ptr.h"
#include "het_tf/kernels/cuda/device_cache.h"

namespace het::dev {

struct OptimizerView {
  int kind;
  float params[8];
  float l2;
  float max_norm;
};

// Checks config.optimizer, its parameters and config.row_floats; throws a Failure with HET_DEV_INVALID.
OptimizerView MakeOptimizer(const HetDevTableConfig& config);

}  // namespace het::dev

#endif  // HET_TF_KERNELS_CUDA_OPTIMIZERS_H_
