// One tick of a row on the device: equals TableSchema::Tick, bit for bit.
//
// The formulas, with their sources, are in core/row/optimizers; here are the same operations in the same
// order, with one tile for each row. The compiler must not fuse or reorder operations: g++ needs
// -ffp-contract=off, nvcc -fmad=false. Roots and divisions are IEEE (nvcc's default).
#pragma once

#include <cmath>

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

template <int V, typename Tile>
HET_DEV void TickSgd(const Tile& tile, const OptimizerView& o, uint32_t dim, float lr, const TickRow& row) {
  ForPacks<V>(tile, dim, [&](uint64_t i) {
    const Pack<V> g = Gradient<V>(o, row, i);
    Pack<V> value = Load<V>(row.value + i), dv = LoadOrZero<V>(row.before, i);
    for (int k = 0; k < V; ++k) {
      const float step = lr * g.at[k];
      value.at[k] -= step;
      dv.at[k] -= step;
    }
    Store<V>(row.value + i, value);
    Store<V>(row.update + i, dv);
  });
}

template <int V, typename Tile>
HET_DEV void TickMomentum(const Tile& tile, const OptimizerView& o, uint32_t dim, float lr,
                          const TickRow& row) {
  const float mu = o.decay;
  ForPacks<V>(tile, dim, [&](uint64_t i) {
    const Pack<V> g = Gradient<V>(o, row, i);
    Pack<V> value = Load<V>(row.value + i), velocity = Load<V>(row.state + i);
    Pack<V> dv = LoadOrZero<V>(row.before, i), a = LoadOrZero<V>(row.before, dim + i);
    for (int k = 0; k < V; ++k) {
      const float step = lr * g.at[k];
      velocity.at[k] = mu * velocity.at[k] - step;
      const float change = o.nesterov ? mu * velocity.at[k] - step : velocity.at[k];
      value.at[k] += change;
      dv.at[k] += change;
      a.at[k] = mu * a.at[k] - step;
    }
    Store<V>(row.value + i, value);
    Store<V>(row.state + i, velocity);
    Store<V>(row.update + i, dv);
    Store<V>(row.update + dim + i, a);
  });
}

template <int V, typename Tile>
HET_DEV void TickRmsprop(const Tile& tile, const OptimizerView& o, uint32_t dim, float lr,
                         const TickRow& row) {
  ForPacks<V>(tile, dim, [&](uint64_t i) {
    const Pack<V> g = Gradient<V>(o, row, i);
    Pack<V> value = Load<V>(row.value + i), velocity = Load<V>(row.state + i);
    Pack<V> dv = LoadOrZero<V>(row.before, i), a = LoadOrZero<V>(row.before, dim + i);
    for (int k = 0; k < V; ++k) {
      const float term = o.gain * (g.at[k] * g.at[k]);
      velocity.at[k] = o.decay * velocity.at[k] + term;
      const float step = lr * g.at[k] / std::sqrt(velocity.at[k] + o.epsilon);
      value.at[k] -= step;
      dv.at[k] -= step;
      a.at[k] = o.decay * a.at[k] + term;
    }
    Store<V>(row.value + i, value);
    Store<V>(row.state + i, velocity);
    Store<V>(row.update + i, dv);
    Store<V>(row.update + dim + i, a);
  });
}

// Shrink::Of (core/row/optimizers/shrink.h).
HET_DEV float ShrinkOf(const OptimizerView& o, float age) {
  return (1.0f + age * o.inverse_decay_steps) / (1.0f + age);
}

template <int V, typename Tile>
HET_DEV void TickAdagrad(const Tile& tile, const OptimizerView& o, uint32_t dim, float lr,
                         const TickRow& row) {
  const float rate = lr / std::sqrt(ShrinkOf(o, row.age));
  ForPacks<V>(tile, dim, [&](uint64_t i) {
    const Pack<V> g = Gradient<V>(o, row, i);
    Pack<V> value = Load<V>(row.value + i), accumulator = Load<V>(row.state + i);
    Pack<V> dv = LoadOrZero<V>(row.before, i), a = LoadOrZero<V>(row.before, dim + i);
    for (int k = 0; k < V; ++k) {
      const float square = g.at[k] * g.at[k];
      accumulator.at[k] += square;
      const float step = rate * g.at[k] / std::sqrt(accumulator.at[k] + o.epsilon);
      value.at[k] -= step;
      dv.at[k] -= step;
      a.at[k] += square;
    }
    Store<V>(row.value + i, value);
    Store<V>(row.state + i, accumulator);
    Store<V>(row.update + i, dv);
    Store<V>(row.update + dim + i, a);
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
  ForPacks<V>(tile, dim, [&](uint64_t i) {
    const Pack<V> g = Gradient<V>(o, row, i);
    Pack<V> value = Load<V>(row.value + i), v = Load<V>(row.state + at_v + i);
    Pack<V> dv = LoadOrZero<V>(row.before, i), av = LoadOrZero<V>(row.before, dim + at_v + i);
    Pack<V> m = g, am = g;  // without a slot m is the gradient
    if (at_v != 0) m = Load<V>(row.state + i), am = LoadOrZero<V>(row.before, dim + i);
    for (int k = 0; k < V; ++k) {
      const float m_term = o.gain * g.at[k], v_term = o.gain2 * (g.at[k] * g.at[k]);
      m.at[k] = o.decay * m.at[k] + m_term;  // exactly g with a beta_1 of 0
      v.at[k] = o.decay2 * v.at[k] + v_term;
      const float change = alpha * m.at[k] / (std::sqrt(v.at[k]) + o.epsilon);
      value.at[k] -= change;
      dv.at[k] -= change;
      am.at[k] = o.decay * am.at[k] + m_term;
      av.at[k] = o.decay2 * av.at[k] + v_term;
    }
    Store<V>(row.value + i, value);
    if (at_v != 0) {
      Store<V>(row.state + i, m);
      Store<V>(row.update + dim + i, am);
    }
    Store<V>(row.state + at_v + i, v);
    Store<V>(row.update + i, dv);
    Store<V>(row.update + dim + at_v + i, av);
  });
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
    return lr / std::sqrt(ShrinkOf(o, row.age) * (accumulator + o.epsilon));
  });
  ForPacks<V>(tile, dim, [&](uint64_t i) {
    const Pack<V> g = Gradient<V>(o, row, i);
    Pack<V> value = Load<V>(row.value + i), dv = LoadOrZero<V>(row.before, i);
    for (int k = 0; k < V; ++k) {
      const float step = scale * g.at[k];
      value.at[k] -= step;
      dv.at[k] -= step;
    }
    Store<V>(row.value + i, value);
    Store<V>(row.update + i, dv);
  });
}

// Returns FTRL's value from z, n and the inverse of the last learning rate.
HET_DEV float FtrlValue(const OptimizerView& o, float inverse_lr, float value, float z, float n) {
  const float denominator = (o.beta + std::sqrt(n)) * inverse_lr + o.two_l2;
  if (o.may_be_untouched && denominator == 0.0f) return value;
  const float low = z < -o.l1 ? -o.l1 : z;
  return ((o.l1 < low ? o.l1 : low) - z) / denominator;
}

template <int V, typename Tile>
HET_DEV void TickFtrl(const Tile& tile, const OptimizerView& o, uint32_t dim, float lr, const TickRow& row) {
  const uint64_t last = 2 * uint64_t{dim};  // index in the state of the learning rate
  if (lr == 0.0f) {                         // changes nothing, but the update may need a copy
    tile.ForEach(dim + last + 1,
                 [&](uint64_t i) { row.update[i] = row.before == nullptr ? 0.0f : row.before[i]; });
    return;
  }
  const float inverse_lr = 1.0f / lr;
  ForPacks<V>(tile, dim, [&](uint64_t i) {
    const Pack<V> g = Gradient<V>(o, row, i);
    Pack<V> value = Load<V>(row.value + i), z = Load<V>(row.state + i), n = Load<V>(row.state + dim + i);
    Pack<V> dz = LoadOrZero<V>(row.before, dim + i), dn = LoadOrZero<V>(row.before, last + i);
    for (int k = 0; k < V; ++k) {
      const float square = g.at[k] * g.at[k], n_old = n.at[k], n_new = n_old + square;
      const float sigma = (std::sqrt(n_new) - std::sqrt(n_old)) * inverse_lr;
      const float change = g.at[k] + (o.two_shrinkage - sigma) * value.at[k];
      z.at[k] += change;
      n.at[k] = n_new;
      dz.at[k] += change;
      dn.at[k] += square;
      value.at[k] = FtrlValue(o, inverse_lr, value.at[k], z.at[k], n.at[k]);
    }
    Store<V>(row.update + i, LoadOrZero<V>(row.before, i));  // the value is not exported: zeros
    Store<V>(row.value + i, value);
    Store<V>(row.state + i, z);
    Store<V>(row.state + dim + i, n);
    Store<V>(row.update + dim + i, dz);
    Store<V>(row.update + last + i, dn);
  });
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
  if constexpr (kKind == HET_DEV_SGD) TickSgd<V>(tile, o, dim, lr, row);
  if constexpr (kKind == HET_DEV_MOMENTUM) TickMomentum<V>(tile, o, dim, lr, row);
  if constexpr (kKind == HET_DEV_RMSPROP) TickRmsprop<V>(tile, o, dim, lr, row);
  if constexpr (kKind == HET_DEV_ADAM) TickAdam<V>(tile, o, dim, lr, row);
  if constexpr (kKind == HET_DEV_ADAGRAD) TickAdagrad<V>(tile, o, dim, lr, row);
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
