// Lazy Adam (Kingma and Ba 2015), as keras.optimizers.Adam on the rows that occur; the others do not decay:
//   step <- step + 1                                            of this row
//   m <- beta_1 m + (1 - beta_1) g,   v <- beta_2 v + (1 - beta_2) g^2
//   value <- value - lr * sqrt(1 - beta_2^step) / (1 - beta_1^step) * m / (sqrt(v) + epsilon)
// Without beta_1 (0) m is the last gradient, and rows have no slot for it.
// `step` is a float and stands still at 2^24; the correction is 1 long before that.
#include <algorithm>

#include "het_tf/core/row/optimizers/entry.h"
#include "het_tf/core/row/optimizers/loop.h"

namespace het {
namespace {

// Tabulated corrections save two exponentials a tick: 70 KiB at beta_2 = 0.999, up to the step where they are
// 1 in float32, and never more than this many.
constexpr double kMostTabulated = 65536;

class Adam final : public Optimizer {
 public:
  // 1 - beta is taken in double, as Keras does: in float32, 1 - 0.999f is off by 1e-5 of itself.
  Adam(size_t dim, double beta_1, double beta_2, double epsilon)
      : Optimizer(dim, Slots(static_cast<float>(beta_1), static_cast<float>(beta_2))),
        b1_(static_cast<float>(beta_1)),
        b2_(static_cast<float>(beta_2)),
        c1_(static_cast<float>(1 - beta_1)),
        c2_(static_cast<float>(1 - beta_2)),
        epsilon_(static_cast<float>(epsilon)),
        log_b1_(std::log(beta_1)),
        log_b2_(std::log(beta_2)),
        converged_(26 * std::log(0.5) / std::max(log_b1_, log_b2_)),
        corrections_(static_cast<size_t>(std::min(converged_ + 2, kMostTabulated))) {
    for (size_t t = 1; t < corrections_.size(); ++t)
      corrections_[t] = ComputeCorrection(static_cast<double>(t));
  }

  void Apply(float lr, const float* g, float /*age*/, float* row, float* update) const override {
    const size_t last = row_floats() - 1;
    const float step = row[last] += 1.0f;
    const float alpha = lr * Correction(step);
    if (update != nullptr) update[last] += 1.0f;
    if (b1_ == 0.0f) {
      TickRow(formulas::Adam<false>{alpha, b1_, b2_, c1_, c2_, epsilon_}, dim(), g, row, update);
    } else {
      TickRow(formulas::Adam<true>{alpha, b1_, b2_, c1_, c2_, epsilon_}, dim(), g, row, update);
    }
  }

 private:
  static std::vector<SlotSpec> Slots(float beta_1, float beta_2) {
    std::vector<SlotSpec> slots;
    if (beta_1 != 0.0f) slots.push_back({"m", true, Merge::kEma, beta_1, 0.0f});
    slots.push_back({"v", true, Merge::kEma, beta_2, 0.0f});
    slots.push_back({"step", false, Merge::kAdd, 0.0f, 0.0f});
    return slots;
  }

  float Correction(float t) const {
    if (t >= 1.0f && t < static_cast<float>(corrections_.size())) return corrections_[static_cast<size_t>(t)];
    return t > converged_ ? 1.0f : ComputeCorrection(t);
  }

  // 1 - beta^t as -expm1(t log beta), which does not cancel where beta^t is near 1.
  float ComputeCorrection(double t) const {
    return static_cast<float>(std::sqrt(-std::expm1(t * log_b2_)) / -std::expm1(t * log_b1_));
  }

  float b1_, b2_, c1_, c2_, epsilon_;
  double log_b1_, log_b2_;
  double converged_;  // the step from which beta^t < 2^-26
  std::vector<float> corrections_;
};

}  // namespace

OptimizerEntry AdamEntry() {
  return {"adam",
          {{"beta_1", 0.9, 0, kBelowOne}, {"beta_2", 0.999, 0, kBelowOne}, {"epsilon", 1e-7, kTiny, kHuge}},
          [](const Params& p, size_t dim) -> std::unique_ptr<Optimizer> {
            return std::make_unique<Adam>(dim, p.at("beta_1"), p.at("beta_2"), p.at("epsilon"));
          }};
}

}  // namespace het
