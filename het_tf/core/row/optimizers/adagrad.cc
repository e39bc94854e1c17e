// AdaGrad (Duchi, Hazan and Singer 2011), as keras.optimizers.Adagrad:
//   accumulator <- accumulator + g^2
//   value       <- value - lr * g / sqrt(accumulator + epsilon)
#include "het_tf/core/row/optimizers/entry.h"
#include "het_tf/core/row/optimizers/loop.h"

namespace het {
namespace {

class Adagrad final : public Optimizer {
 public:
  Adagrad(size_t dim, float initial, float epsilon)
      : Optimizer(dim, {{"accumulator", true, Merge::kAdd, 0.0f, initial}}), epsilon_(epsilon) {}

  void Apply(float lr, const float* g, float* row, float* update) const override {
    float* const a = Part(update, dim());
    update == nullptr ? Tick<false>(lr, g, row, row + dim(), update, a)
                      : Tick<true>(lr, g, row, row + dim(), update, a);
  }

 private:
  template <bool kTrack>
  void Tick(float lr, const float* HET_RESTRICT g, float* HET_RESTRICT value, float* HET_RESTRICT accumulator,
            float* HET_RESTRICT dv, float* HET_RESTRICT a) const {
    const float epsilon = epsilon_;
    for (size_t i = 0, d = dim(); i < d; ++i) {
      const float square = g[i] * g[i];
      accumulator[i] += square;
      const float step = lr * g[i] / std::sqrt(accumulator[i] + epsilon);
      value[i] -= step;
      if constexpr (kTrack) {
        dv[i] -= step;
        a[i] += square;
      }
    }
  }

  float epsilon_;
};

}  // namespace

OptimizerEntry AdagradEntry() {
  return {"adagrad",
          {{"initial_accumulator", 0, 0, kHuge}, {"epsilon", 1e-10, kTiny, kHuge}},
          [](const Params& p, size_t dim) -> std::unique_ptr<Optimizer> {
            return std::make_unique<Adagrad>(dim, static_cast<float>(p.at("initial_accumulator")),
                                             static_cast<float>(p.at("epsilon")));
          }};
}

}  // namespace het
