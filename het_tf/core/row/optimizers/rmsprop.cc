// RMSProp (Tieleman and Hinton 2012, lecture 6e), as keras.optimizers.RMSprop without momentum, not centered:
//   velocity <- rho * velocity + (1 - rho) * g^2
//   value    <- value - lr * g / sqrt(velocity + epsilon)
#include "het_tf/core/row/optimizers/entry.h"
#include "het_tf/core/row/optimizers/loop.h"

namespace het {
namespace {

class Rmsprop final : public Optimizer {
 public:
  // 1 - rho is taken in double, as Keras does: in float32, 1 - 0.999f is off by 1e-5 of itself.
  Rmsprop(size_t dim, double rho, double epsilon)
      : Optimizer(dim, {{"velocity", true, Merge::kEma, static_cast<float>(rho), 0.0f}}),
        rho_(static_cast<float>(rho)),
        one_minus_rho_(static_cast<float>(1 - rho)),
        epsilon_(static_cast<float>(epsilon)) {}

  void Apply(float lr, const float* g, float /*age*/, float* row, float* update) const override {
    TickRow(formulas::Rmsprop{lr, rho_, one_minus_rho_, epsilon_}, dim(), g, row, update);
  }

 private:
  float rho_, one_minus_rho_, epsilon_;
};

}  // namespace

OptimizerEntry RmspropEntry() {
  return {"rmsprop",
          {{"rho", 0.9, 0, kBelowOne}, {"epsilon", 1e-7, kTiny, kHuge}},
          [](const Params& p, size_t dim) -> std::unique_ptr<Optimizer> {
            return std::make_unique<Rmsprop>(dim, p.at("rho"), p.at("epsilon"));
          }};
}

}  // namespace het
