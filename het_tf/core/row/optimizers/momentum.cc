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
    float* const velocity = row + dim();
    float* const a = Part(update, dim());
    if (nesterov_) {
      update == nullptr ? Tick<true, false>(lr, g, row, velocity, update, a)
                        : Tick<true, true>(lr, g, row, velocity, update, a);
    } else {
      update == nullptr ? Tick<false, false>(lr, g, row, velocity, update, a)
                        : Tick<false, true>(lr, g, row, velocity, update, a);
    }
  }

 private:
  template <bool kNesterov, bool kTrack>
  void Tick(float lr, const float* HET_RESTRICT g, float* HET_RESTRICT value, float* HET_RESTRICT velocity,
            float* HET_RESTRICT dv, float* HET_RESTRICT a) const {
    const float mu = mu_;
    for (size_t i = 0, d = dim(); i < d; ++i) {
      const float step = lr * g[i];
      velocity[i] = mu * velocity[i] - step;
      const float change = kNesterov ? mu * velocity[i] - step : velocity[i];
      value[i] += change;
      if constexpr (kTrack) {
        dv[i] += change;
        a[i] = mu * a[i] - step;
      }
    }
  }

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
