// AdaGrad (Duchi, Hazan and Singer 2011), as keras.optimizers.Adagrad:
//   accumulator <- accumulator + g^2
//   value       <- value - lr * g / sqrt(Shrink(n) * (accumulator + epsilon))     n: the row's ticks
//   (shrink.h)
#include "het_tf/core/row/optimizers/entry.h"
#include "het_tf/core/row/optimizers/loop.h"
#include "het_tf/core/row/optimizers/shrink.h"

namespace het {
namespace {

class Adagrad final : public Optimizer {
 public:
  Adagrad(size_t dim, float initial, float epsilon, double decay_steps)
      : Optimizer(dim, {{"accumulator", true, Merge::kAdd, 0.0f, initial}}),
        epsilon_(epsilon),
        shrink_(decay_steps) {}

  bool uses_age() const override { return shrink_.uses_age(); }
  double decay_steps() const override { return shrink_.decay_steps(); }

  void Apply(float lr, const float* g, float age, float* row, float* update) const override {
    TickRow(formulas::Adagrad{lr / std::sqrt(shrink_.Of(age)), epsilon_}, dim(), g, row, update);
  }

 private:
  float epsilon_;
  Shrink shrink_;
};

}  // namespace

OptimizerEntry AdagradEntry() {
  return {
      "adagrad",
      {{"initial_accumulator", 0, 0, kHuge}, {"epsilon", 1e-10, kTiny, kHuge}, {"decay_steps", 1, 1, kHuge}},
      [](const Params& p, size_t dim) -> std::unique_ptr<Optimizer> {
        return std::make_unique<Adagrad>(dim, static_cast<float>(p.at("initial_accumulator")),
                                         static_cast<float>(p.at("epsilon")), p.at("decay_steps"));
      }};
}

}  // namespace het
