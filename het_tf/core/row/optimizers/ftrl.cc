// FTRL-Proximal (McMahan et al. 2013, "Ad Click Prediction"), as keras.optimizers.Ftrl with lr_power -1/2:
//   n' = n + g^2
//   z' = z + g + 2 l2_shrinkage * value - (sqrt(n') - sqrt(n)) / lr * value
//   value' = (clip(z', -l1, l1) - z') / ((beta + sqrt(n')) / lr + 2 l2)
// The value is a function of z, n and the last lr: it does not travel, and l1's zeros survive every merge.
// A learning rate of 0 leaves the row as it is: the formula has no value there, and its limit is no step.

#include "het_tf/core/row/optimizers/entry.h"
#include "het_tf/core/row/optimizers/loop.h"

namespace het {
namespace {

class Ftrl final : public Optimizer {
 public:
  Ftrl(size_t dim, const Params& p)
      : Optimizer(dim, {{"z", true, Merge::kAdd, 0.0f, 0.0f},
                        {"n", true, Merge::kAdd, 0.0f, static_cast<float>(p.at("initial_accumulator"))},
                        {"learning_rate", false, Merge::kLast, 0.0f, 0.0f}}),
        l1_(static_cast<float>(p.at("l1"))),
        two_l2_(static_cast<float>(2 * p.at("l2"))),
        beta_(static_cast<float>(p.at("beta"))),
        two_shrinkage_(static_cast<float>(2 * p.at("l2_shrinkage"))),
        may_be_untouched_(slots()[1].initial == 0.0f && beta_ == 0.0f && two_l2_ == 0.0f) {}

  bool value_is_derived() const override { return true; }

  double decay_steps() const override { return 1; }

  void Apply(float lr, const float* g, float /*age*/, float* row, float* update) const override {
    if (lr == 0.0f) return;
    TickRow(formulas::Ftrl{1.0f / lr, two_shrinkage_}, dim(), g, row, update);
    row[3 * dim()] = lr;
    if (update != nullptr) update[3 * dim()] = lr;
    DeriveValue(row);
  }

 protected:
  // Learning rate 0: never written, so the initializer's value stands. A denominator of 0 (n = beta = l2 =
  // 0): the element has had no gradient, and keeps its value, where Keras computes 0 / 0.
  void DeriveValue(float* row) const override {
    const float lr = row[3 * dim()];
    if (lr == 0.0f) return;
    may_be_untouched_ ? Derive<true>(lr, row, row + dim(), row + 2 * dim())
                      : Derive<false>(lr, row, row + dim(), row + 2 * dim());
  }

 private:
  template <bool kMayBeUntouched>
  void Derive(float lr, float* HET_RESTRICT value, const float* HET_RESTRICT z,
              const float* HET_RESTRICT n) const {
    const formulas::FtrlValue of{1.0f / lr, l1_, beta_, two_l2_};
    for (size_t i = 0, d = dim(); i < d; ++i) {
      const float denominator = of.Denominator(n[i]);
      if (kMayBeUntouched && denominator == 0.0f) continue;
      value[i] = of(z[i], denominator);
    }
  }

  float l1_, two_l2_, beta_, two_shrinkage_;
  bool may_be_untouched_;  // apart, since the branch keeps the loop from becoming SIMD
};

}  // namespace

OptimizerEntry FtrlEntry() {
  return {"ftrl",
          {{"l1", 0, 0, kHuge},
           {"l2", 0, 0, kHuge},
           {"beta", 0, 0, kHuge},
           {"l2_shrinkage", 0, 0, kHuge},
           {"initial_accumulator", 0, 0, kHuge}},
          [](const Params& p, size_t dim) -> std::unique_ptr<Optimizer> {
            return std::make_unique<Ftrl>(dim, p);
          }};
}

}  // namespace het
