#include <algorithm>
#include <cmath>
#include <cstdio>

#include "het_tf/kernels/cuda/context.h"
#include "het_tf/kernels/cuda/optimizers.h"

namespace het::dev {
namespace {

// The limits of core/row/optimizers, so that both accept the same tables.
constexpr double kBelowOne = 0.9999999, kTiny = 1e-30, kHuge = 1e30;
constexpr double kFlag = -1;  // in place of a highest value
constexpr double kMostTabulated = 65536;

struct Param {
  const char* name;
  double low, high;
};
struct Kind {
  const char* name;
  uint32_t n_params;
  Param params[5];
  uint32_t slots_of_dim, slots_of_one;
};
constexpr Param kDecaySteps = {"decay_steps", 1, kHuge};
constexpr Kind kKinds[] = {
    {"sgd", 0, {}, 0, 0},
    {"momentum", 2, {{"momentum", 0, 1}, {"nesterov", 0, kFlag}}, 1, 0},
    {"rmsprop", 2, {{"rho", 0, kBelowOne}, {"epsilon", kTiny, kHuge}}, 1, 0},
    {"adam", 3, {{"beta_1", 0, kBelowOne}, {"beta_2", 0, kBelowOne}, {"epsilon", kTiny, kHuge}}, 2, 1},
    {"adagrad", 3, {{"initial_accumulator", 0, kHuge}, {"epsilon", kTiny, kHuge}, kDecaySteps}, 1, 0},
    {"row_wise_adagrad",
     3,
     {{"initial_accumulator", 0, kHuge}, {"epsilon", kTiny, kHuge}, kDecaySteps},
     0,
     1},
    {"ftrl",
     5,
     {{"l1", 0, kHuge},
      {"l2", 0, kHuge},
      {"beta", 0, kHuge},
      {"l2_shrinkage", 0, kHuge},
      {"initial_accumulator", 0, kHuge}},
     2,
     1},
};

std::string Text(double x) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.9g", x);
  return buffer;
}

void Check(const HetDevTableConfig& config) {
  const std::string table = "table '" + std::string(config.name == nullptr ? "" : config.name) + "': ";
  auto fail = [&](const std::string& what, const std::string& value, const std::string& legal) {
    Fail(HET_DEV_INVALID, table + what + " is " + value + "; it must be " + legal);
  };
  if (config.optimizer < HET_DEV_SGD || config.optimizer > HET_DEV_FTRL) {
    fail("optimizer", std::to_string(config.optimizer), "from 0 to 6 (HET_DEV_SGD to HET_DEV_FTRL)");
  }
  const Kind& kind = kKinds[config.optimizer];
  for (uint32_t p = 0; p < kind.n_params; ++p) {
    const Param& param = kind.params[p];
    const double value = config.params[p];
    const bool flag = param.high == kFlag;
    if (flag ? value == 0 || value == 1 : value >= param.low && value <= param.high) continue;
    fail(std::string(kind.name) + "'s " + param.name, Text(value),
         flag ? "0 or 1" : "from " + Text(param.low) + " to " + Text(param.high));
  }
  if (!(config.l2 >= 0 && std::isfinite(config.l2))) fail("l2", Text(config.l2), "finite and >= 0");
  if (!(config.max_norm >= 0 && std::isfinite(config.max_norm))) {
    fail("max_norm", Text(config.max_norm), "finite and >= 0 (0: no limit)");
  }
  if (config.max_norm > 0 && config.optimizer == HET_DEV_FTRL) {
    fail("max_norm", Text(config.max_norm), "0 with ftrl, whose value is a function of its slots; use l2");
  }
  // Adam without beta_1 has no slot m.
  const uint32_t slots =
      kind.slots_of_dim - (config.optimizer == HET_DEV_ADAM && static_cast<float>(config.params[0]) == 0);
  const uint64_t floats = config.dim * (uint64_t{1} + slots) + kind.slots_of_one;
  if (config.row_floats != floats) {
    fail("row_floats", std::to_string(config.row_floats),
         std::to_string(floats) + " for " + kind.name + " with dim " + std::to_string(config.dim));
  }
}

double Converged(const OptimizerView& view) {  // the step from which beta^t < 2^-26
  return 26 * std::log(0.5) / std::max(view.log_b1, view.log_b2);
}

}  // namespace

OptimizerView MakeOptimizer(const HetDevTableConfig& config) {
  Check(config);
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
