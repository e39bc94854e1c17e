// Row-wise AdaGrad: one accumulator a row instead of one an element (the idea of FBGEMM's
// EXACT_ROWWISE_ADAGRAD; Mudigere et al. 2022, "Software-Hardware Co-design for ... Deep Learning
// Recommendation Models"):
//   accumulator <- accumulator + mean(g^2)
//   value       <- value - lr * g / sqrt(Shrink(n) * (accumulator + epsilon))     n: the row's ticks
//   (shrink.h)
// The accumulator begins at 0: gradients are of the mean loss, their squares shrink with the square of the
// batch, and any number above them rules for thousands of ticks. For the same reason epsilon, which stands
// inside the root as in Keras' Adagrad, is small: 1e-7 slows tables down from batches of 4,096 on.
#include "het_tf/core/row/optimizers/entry.h"
#include "het_tf/core/row/optimizers/loop.h"
#include "het_tf/core/row/optimizers/shrink.h"

namespace het {
namespace {

// Eight partial sums, since the compiler may not reorder a float sum by itself; also the more exact order.
float MeanSquare(const float* HET_RESTRICT g, size_t dim) {
  float lane[8] = {};
  size_t i = 0;
  for (; i + 8 <= dim; i += 8) {
    for (size_t j = 0; j < 8; ++j) lane[j] += g[i + j] * g[i + j];
  }
  for (size_t j = 0; i < dim; ++i, ++j) lane[j] += g[i] * g[i];
  const float sum = ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
  return sum / static_cast<float>(dim);
}

class RowWiseAdagrad final : public Optimizer {
 public:
  RowWiseAdagrad(size_t dim, float initial, float epsilon, double decay_steps)
      : Optimizer(dim, {{"accumulator", false, Merge::kAdd, 0.0f, initial}}),
        epsilon_(epsilon),
        shrink_(decay_steps) {}

  bool uses_age() const override { return shrink_.uses_age(); }
  double decay_steps() const override { return shrink_.decay_steps(); }

  void Apply(float lr, const float* g, float age, float* row, float* update) const override {
    const float square = MeanSquare(g, dim());
    const float accumulator = row[dim()] += square;
    const float scale = lr / std::sqrt(shrink_.Of(age) * (accumulator + epsilon_));
    TickRow(formulas::Sgd{scale}, dim(), g, row, update);
    if (update != nullptr) update[dim()] += square;
  }

 private:
  float epsilon_;
  Shrink shrink_;
};

}  // namespace

OptimizerEntry RowWiseAdagradEntry() {
  return {
      "row_wise_adagrad",
      {{"initial_accumulator", 0, 0, kHuge}, {"epsilon", 1e-10, kTiny, kHuge}, {"decay_steps", 20, 1, kHuge}},
      [](const Params& p, size_t dim) -> std::unique_ptr<Optimizer> {
        return std::make_unique<RowWiseAdagrad>(dim, static_cast<float>(p.at("initial_accumulator")),
                                                static_cast<float>(p.at("epsilon")), p.at("decay_steps"));
      }};
}

}  // namespace het
