// Optimizers as kernels see them: the parameters of core/optimizers, converted as they are converted there.
// What a tick does is in optimizer_tick.h, what an update does to a row in compose.h.
#pragma once

#include <vector>

#include "het_tf/core/device/abi.h"
#include "het_tf/kernels/cuda/dev_ptr.h"

namespace het::dev {

struct OptimizerView {
  int kind;                      // HET_DEV_SGD, ...
  int nesterov;                  // momentum
  float decay, gain;             // momentum, rmsprop's rho, adam's beta_1; 1 - decay, taken in double
  float decay2, gain2;           // adam's beta_2
  float epsilon;                 // rmsprop, adam, adagrad, row_wise_adagrad
  float l1, two_l2, beta;        // ftrl
  float two_shrinkage;           // ftrl
  int may_be_untouched;          // ftrl: the formula may be 0 / 0
  int has_l2;                    // of the table
  float l2_slope;                // 2 * l2
  double max_norm;               // of the table; 0: none
  double log_b1, log_b2;         // adam, for steps that are not in the table
  double converged;              // adam: from this step on the correction is 1
  Dev<const float> corrections;  // adam: of the steps 0 .. n_corrections - 1
  uint32_t n_corrections;
};

// Checks config.optimizer, its parameters, max_norm, l2 and config.row_floats; throws a Failure with
// HET_DEV_INVALID. Leaves `corrections` to the caller, who puts Corrections() into device memory.
OptimizerView MakeOptimizer(const HetDevTableConfig& config);

// Adam's: a tick should not pay for two exponentials. Empty for other optimizers.
std::vector<float> Corrections(const HetDevTableConfig& config);

}  // namespace het::dev
