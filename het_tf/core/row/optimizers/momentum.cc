// Momentum (Polyak 1964; Nesterov 1983 in the form of Sutskever et al. 2013), as
// keras.optimizers.SGD(momentum=mu):
//   velocity <- mu * velocity - lr * g
//   value    <- value + velocity                         or, nesterov,
//   value    <- value + mu * velocity - lr * g
// The velocity is a decaying sum, so it merges as a moving average with beta = mu whose term is -lr * g.
#include "het_tf/core/row/optimizers/entry.h"
#include "het_tf/core/row/optimizers/loop.h"

namespace het {
namespace {

class Momentum final : public Optimizer {
 public:
  Momentum(size_t dim, float mu, bool nesterov)
      : Optimizer(dim, {{"momentum", true, Merge::kEma, mu, 0.0f}}), mu_(mu), nesterov_(nesterov) {}

  void Apply(float lr, const float* g, float /*age*/, float* row, float* update) const override {
    if (nesterov_) {
      TickRow(formulas::Momentum<true>{lr, mu_}, dim(), g, row, update);
    } else {
      TickRow(formulas::Momentum<false>{lr, mu_}, dim(), g, row, update);
    }
  }

 private:
  float mu_;
  bool nesterov_;
};

}  // namespace

OptimizerEntry MomentumEntry() {
  return {"momentum",
          {{"momentum", 0.9, 0, 1}, {"nesterov", 0, 0, 1, /*flag=*/true}},
          [](const Params& p, size_t dim) -> std::unique_ptr<Optimizer> {
            return std::make_unique<Momentum>(dim, static_cast<float>(p.at("momentum")),
                                              p.at("nesterov") != 0);
          }};
}

}  // namespace het
