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
    TickRow(formulas::Sgd{learning_rate}, dim(), g, row, update);
  }
};

}  // namespace

OptimizerEntry SgdEntry() {
  return {"sgd", {}, [](const Params&, size_t dim) -> std::unique_ptr<Optimizer> {
            return std::make_unique<Sgd>(dim);
          }};
}

}  // namespace het
