// One tick of a row on the device: equals TableSchema::Tick, bit for bit, by the formulas of
// core/row/optimizers/formulas.h, with one tile for each row. Roots and divisions are IEEE (nvcc's default).
#pragma once

#include <cmath>

#include "het_tf/core/row/optimizers/formulas.h"
#include "het_tf/kernels/cuda/layout.h"
#include "het_tf/kernels/cuda/pack.h"
#include "het_tf/kernels/cuda/tile.h"

namespace het::dev {

// Pointers to a row's parts. With V == 4 all are aligned to 16 bytes, and dim is a multiple of 4.
struct TickRow {
  const float* gradient;  // of the key, summed and scaled
  float* value;
  float* state;
  float age;            // ticks that the row has had
  const float* before;  // the update before this tick, [dv | a]; null: the identity
  float* update;        // the update after this tick; may be `before`
};

// g[i] for V elements from i, including the table's l2. Read it before the value changes.
template <int V>
HET_DEV Pack<V> Gradient(const OptimizerView& o, const TickRow& row, uint64_t i) {
  Pack<V> g = Load<V>(row.gradient + i);
  if (o.has_l2) {
    const Pack<V> value = Load<V>(row.value + i);
    for (int k = 0; k < V; ++k) g.at[k] += o.l2_slope * value.at[k];
  }
  return g;
}

// Slots of dim floats stand behind the value, in the row and in the update.
template <int V, typename Tile, typename Formula>
HET_DEV void TickElements(const Tile& tile, const OptimizerView& o, uint32_t dim, const TickRow& row,
                          const Formula& formula) {
  constexpr int kSlots = Formula::kSlots;
  ForPacks<V>(tile, dim, [&](uint64_t i) {
    const Pack<V> g = Gradient<V>(o, row, i);
    Pack<V> value = Load<V>(row.value + i), dv = LoadOrZero<V>(row.before, i), s[kSlots + 1], a[kSlots + 1];
    for (int j = 0; j < kSlots; ++j) {
      s[j] = Load<V>(row.state + uint64_t{dim} * j + i);
      a[j] = LoadOrZero<V>(row.before, uint64_t{dim} * (j + 1) + i);
    }
    for (int k = 0; k < V; ++k) {
      float of_row[kSlots + 1], of_update[kSlots + 1];
      for (int j = 0; j < kSlots; ++j) of_row[j] = s[j].at[k], of_update[j] = a[j].at[k];
      formula(g.at[k], &value.at[k], of_row, &dv.at[k], of_update);
      for (int j = 0; j < kSlots; ++j) s[j].at[k] = of_row[j], a[j].at[k] = of_update[j];
    }
    Store<V>(row.value + i, value);
    Store<V>(row.update + i, dv);
    for (int j = 0; j < kSlots; ++j) {
      Store<V>(row.state + uint64_t{dim} * j + i, s[j]);
      Store<V>(row.update + uint64_t{dim} * (j + 1) + i, a[j]);
    }
  });
}

// Adam's bias correction of a step; past the table it is computed, within an ulp of the CPU's.
HET_DEV float AdamCorrection(const OptimizerView& o, float step) {
  if (step >= 1.0f && step < static_cast<float>(o.n_corrections)) {
    return static_cast<const float*>(o.corrections)[static_cast<uint32_t>(step)];
  }
  const double t = step;
  if (t > o.converged) return 1.0f;
  return static_cast<float>(std::sqrt(-std::expm1(t * o.log_b2)) / -std::expm1(t * o.log_b1));
}

// Where v begins in the state: after m, for which there is a slot only with a beta_1.
HET_DEV uint64_t AdamV(const OptimizerView& o, uint64_t dim) { return o.decay == 0.0f ? 0 : dim; }

template <int V, typename Tile>
HET_DEV void TickAdam(const Tile& tile, const OptimizerView& o, uint32_t dim, float lr, const TickRow& row) {
  const uint64_t at_v = AdamV(o, dim), last = at_v + dim;
  const float alpha = tile.One([&] {
    row.update[dim + last] = (row.before == nullptr ? 0.0f : row.before[dim + last]) + 1.0f;
    const float step = row.state[last] += 1.0f;
    return lr * AdamCorrection(o, step);
  });
  if (at_v != 0) {
    const formulas::Adam<true> formula = {alpha, o.decay, o.decay2, o.gain, o.gain2, o.epsilon};
    TickElements<V>(tile, o, dim, row, formula);
  } else {
    const formulas::Adam<false> formula = {alpha, o.decay, o.decay2, o.gain, o.gain2, o.epsilon};
    TickElements<V>(tile, o, dim, row, formula);
  }
}

template <int V, typename Tile>
HET_DEV void TickRowWiseAdagrad(const Tile& tile, const OptimizerView& o, uint32_t dim, float lr,
                                const TickRow& row) {
  const float sum = tile.Sum8([&](uint32_t lane) {
    float squares = 0.0f;
    for (uint64_t i = lane; i < dim; i += 8) {
      const float g = Gradient<1>(o, row, i).at[0];
      squares += g * g;
    }
    return squares;
  });
  const float square = sum / static_cast<float>(dim);
  const float scale = tile.One([&] {
    row.update[dim] = (row.before == nullptr ? 0.0f : row.before[dim]) + square;
    const float accumulator = row.state[0] += square;
    return lr / std::sqrt(formulas::Shrink(o.inverse_decay_steps, row.age) * (accumulator + o.epsilon));
  });
  TickElements<V>(tile, o, dim, row, formulas::Sgd{scale});
}

// Returns FTRL's value from z, n and the inverse of the last learning rate.
HET_DEV float FtrlValue(const OptimizerView& o, float inverse_lr, float value, float z, float n) {
  const formulas::FtrlValue of = {inverse_lr, o.l1, o.beta, o.two_l2};
  const float denominator = of.Denominator(n);
  return o.may_be_untouched && denominator == 0.0f ? value : of(z, denominator);
}

// z and n, and the value that follows from them. The value is not exported: dv stays as it is.
struct FtrlOfDevice : formulas::Ftrl {
  const OptimizerView& o;

  HET_DEV void operator()(float g, float* value, float* s, float* dv, float* a) const {
    formulas::Ftrl::operator()(g, value, s, dv, a);
    *value = FtrlValue(o, inverse_lr, *value, s[0], s[1]);
  }
};

template <int V, typename Tile>
HET_DEV void TickFtrl(const Tile& tile, const OptimizerView& o, uint32_t dim, float lr, const TickRow& row) {
  const uint64_t last = 2 * uint64_t{dim};  // index in the state of the learning rate
  if (lr == 0.0f) {                         // changes nothing, but the update may need a copy
    tile.ForEach(dim + last + 1,
                 [&](uint64_t i) { row.update[i] = row.before == nullptr ? 0.0f : row.before[i]; });
    return;
  }
  TickElements<V>(tile, o, dim, row, FtrlOfDevice{{1.0f / lr, o.two_shrinkage}, o});
  tile.Once([&] {
    row.state[last] = lr;
    row.update[dim + last] = lr;
  });
}

// Applies the table's max_norm. Squares are added in sequence, as on the CPU.
template <int V, typename Tile>
HET_DEV void LimitNorm(const Tile& tile, const OptimizerView& o, uint32_t dim, const TickRow& row) {
  tile.Sync();
  const double squares = tile.One([&] {
    double sum = 0;
    for (uint64_t i = 0; i < dim; ++i) sum += static_cast<double>(row.value[i]) * row.value[i];
    return sum;
  });
  if (squares <= o.max_norm * o.max_norm) return;
  const float scale = static_cast<float>(o.max_norm / std::sqrt(squares));
  ForPacks<V>(tile, dim, [&](uint64_t i) {
    Pack<V> value = Load<V>(row.value + i), dv = Load<V>(row.update + i);
    for (int k = 0; k < V; ++k) {
      const float limited = value.at[k] * scale;
      dv.at[k] += limited - value.at[k];
      value.at[k] = limited;
    }
    Store<V>(row.value + i, value);
    Store<V>(row.update + i, dv);
  });
}

template <int kKind, int V, typename Tile>
HET_DEV void TickRowBy(const Tile& tile, const OptimizerView& o, uint32_t dim, float lr, const TickRow& row) {
  const auto tick = [&](const auto& formula) { TickElements<V>(tile, o, dim, row, formula); };
  if constexpr (kKind == HET_DEV_SGD) tick(formulas::Sgd{lr});
  if constexpr (kKind == HET_DEV_MOMENTUM) {
    o.nesterov ? tick(formulas::Momentum<true>{lr, o.decay}) : tick(formulas::Momentum<false>{lr, o.decay});
  }
  if constexpr (kKind == HET_DEV_RMSPROP) tick(formulas::Rmsprop{lr, o.decay, o.gain, o.epsilon});
  if constexpr (kKind == HET_DEV_ADAGRAD) {
    tick(formulas::Adagrad{lr / std::sqrt(formulas::Shrink(o.inverse_decay_steps, row.age)), o.epsilon});
  }
  if constexpr (kKind == HET_DEV_ADAM) TickAdam<V>(tile, o, dim, lr, row);
  if constexpr (kKind == HET_DEV_ROW_WISE_ADAGRAD) TickRowWiseAdagrad<V>(tile, o, dim, lr, row);
  if constexpr (kKind == HET_DEV_FTRL) TickFtrl<V>(tile, o, dim, lr, row);
  if (kKind != HET_DEV_FTRL && o.max_norm > 0) LimitNorm<V>(tile, o, dim, row);
}

// A kernel has one kind of optimizer, since a kernel with all of them would need the most registers of any.
// All lanes must call it; there is no Sync at the end.
template <int kKind, typename Tile>
HET_DEV void TickRowOnce(const Tile& tile, const OptimizerView& o, uint32_t dim, float lr,
                         const TickRow& row) {
  // A state of one float cannot be loaded in packs.
  constexpr bool kStateHasPacks = kKind != HET_DEV_SGD && kKind != HET_DEV_ROW_WISE_ADAGRAD;
  const uint64_t addresses = reinterpret_cast<uint64_t>(row.gradient) |
                             reinterpret_cast<uint64_t>(row.value) | reinterpret_cast<uint64_t>(row.before) |
                             reinterpret_cast<uint64_t>(row.update) |
                             (kStateHasPacks ? reinterpret_cast<uint64_t>(row.state) : 0);
  if (dim % 4 == 0 && (addresses & 15) == 0) {
    TickRowBy<kKind, 4>(tile, o, dim, lr, row);
  } else {
    TickRowBy<kKind, 1>(tile, o, dim, lr, row);
  }
}

}  // namespace het::dev
