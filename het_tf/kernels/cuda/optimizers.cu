#include <algorithm>
#include <cmath>

#include "het_tf/kernels/cuda/optimizers.h"

namespace het::dev {
namespace {

constexpr double kMostTabulated = 65536;

double Converged(const OptimizerView& view) {  // the step from which beta^t < 2^-26
  return 26 * std::log(0.5) / std::max(view.log_b1, view.log_b2);
}

}  // namespace

OptimizerView MakeOptimizer(const HetDevTableConfig& config) {
  OptimizerView view = {};
  view.kind = config.optimizer;
  const double* p = config.params;
  auto average = [](double decay, float* decay_out, float* gain_out) {
    *decay_out = static_cast<float>(decay);
    *gain_out = static_cast<float>(1 - decay);
  };
  switch (config.optimizer) {
    case HET_DEV_MOMENTUM:
      average(p[0], &view.decay, &view.gain);
      view.nesterov = p[1] != 0;
      break;
    case HET_DEV_RMSPROP:
      average(p[0], &view.decay, &view.gain);
      view.epsilon = static_cast<float>(p[1]);
      break;
    case HET_DEV_ADAM:
      average(p[0], &view.decay, &view.gain);
      average(p[1], &view.decay2, &view.gain2);
      view.epsilon = static_cast<float>(p[2]);
      view.log_b1 = std::log(p[0]);
      view.log_b2 = std::log(p[1]);
      view.converged = Converged(view);
      break;
    case HET_DEV_ADAGRAD:
    case HET_DEV_ROW_WISE_ADAGRAD:
      view.epsilon = static_cast<float>(p[1]);
      view.inverse_decay_steps = static_cast<float>(1 / p[2]);
      break;
    case HET_DEV_FTRL:
      view.l1 = static_cast<float>(p[0]);
      view.two_l2 = static_cast<float>(2 * p[1]);
      view.beta = static_cast<float>(p[2]);
      view.two_shrinkage = static_cast<float>(2 * p[3]);
      view.may_be_untouched = static_cast<float>(p[4]) == 0.0f && view.beta == 0.0f && view.two_l2 == 0.0f;
      break;
    default:
      break;
  }
  view.has_l2 = config.l2 > 0;
  view.l2_slope = static_cast<float>(2 * config.l2);
  view.max_norm = config.max_norm;
  return view;
}

std::vector<float> Corrections(const HetDevTableConfig& config) {
  if (config.optimizer != HET_DEV_ADAM) return {};
  const OptimizerView view = MakeOptimizer(config);
  std::vector<float> corrections(static_cast<size_t>(std::min(view.converged + 2, kMostTabulated)));
  for (size_t t = 1; t < corrections.size(); ++t) {
    const auto step = static_cast<double>(t);
    corrections[t] =
        static_cast<float>(std::sqrt(-std::expm1(step * view.log_b2)) / -std::expm1(step * view.log_b1));
  }
  return corrections;
}

}  // namespace het::dev
