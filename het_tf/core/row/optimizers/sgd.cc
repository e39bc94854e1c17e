// Stochastic gradient descent (Robbins and Monro 1951), as keras.optimizers.SGD without momentum:
//   value <- value - lr * g
#include "het_tf/core/row/optimizers/entry.h"
#include "het_tf/core/row/optimizers/loop.h"

namespace het {
namespace {

class Sgd final : public Optimizer {
 public:
  explicit Sgd(size_t dim) : Optimizer(dim, {}) {}

  void Apply(float learning_rate, const float* g, float /*age*/, float* row, float* update) const override {
    update == nullptr ? Tick<false>(learning_rate, g, row, update)
                      : Tick<true>(learning_rate, g, row, update);
  }

 private:
  template <bool kTrack>
  void Tick(float lr, const float* HET_RESTRICT g, float* HET_RESTRICT value, float* HET_RESTRICT dv) const {
    for (size_t i = 0, d = dim(); i < d; ++i) {
      const float step = lr * g[i];
      value[i] -= step;
      if constexpr (kTrack) dv[i] -= step;
    }
  }
};

}  // namespace

OptimizerEntry SgdEntry() {
  return {"sgd", {}, [](const Params&, size_t dim) -> std::unique_ptr<Optimizer> {
            return std::make_unique<Sgd>(dim);
          }};
}

}  // namespace het
