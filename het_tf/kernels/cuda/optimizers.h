// Optimizers for kernels: the parameters of core/row/optimizers, converted in the same way. optimizer_tick.h
// has the ticks, compose.h the effect of updates.
#pragma once

#include <vector>

#include "het_tf/ext/gpu/cc/abi.h"
#include "het_tf/kernels/cuda/dev_ptr.h"

namespace het::dev {

struct OptimizerView {
  int kind;                      // HET_DEV_SGD, ...
  int nesterov;                  // momentum
  float decay, gain;             // momentum, rmsprop's rho, adam's beta_1; 1 - decay, taken in double
  float decay2, gain2;           // adam's beta_2
  float epsilon;                 // rmsprop, adam, adagrad, row_wise_adagrad
  float inverse_decay_steps;     // adagrad, row_wise_adagrad
  float l1, two_l2, beta;        // ftrl
  float two_shrinkage;           // ftrl
  int may_be_untouched;          // ftrl: the formula may be 0 / 0
  int has_l2;                    // of the table
  float l2_slope;                // 2 * l2
  double max_norm;               // of the table; 0: none
  double log_b1, log_b2;         // adam, for steps past `corrections`
  double converged;              // adam: the correction is 1 from this step
  Dev<const float> corrections;  // adam: for the steps 0 .. n_corrections - 1
  uint32_t n_corrections;
};

// Of a config that core/row has checked. The caller sets `corrections`, by copying Corrections() into device
// memory.
OptimizerView MakeOptimizer(const HetDevTableConfig& config);

// Adam's corrections, so that a tick does not compute two exponentials. Empty for other optimizers.
std::vector<float> Corrections(const HetDevTableConfig& config);

}  // namespace het::dev
