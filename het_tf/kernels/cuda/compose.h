// The effect of an update on a row on the device: Optimizer::MergeInto (core/row/optimizer.h), bit for bit.
#pragma once

#include "het_tf/kernels/cuda/layout.h"
#include "het_tf/kernels/cuda/optimizer_tick.h"
#include "het_tf/kernels/cuda/tile.h"

namespace het::dev {

// Computes beta^p by squaring, in double, as in core/row/optimizer.cc.
HET_DEV float Power(float beta, uint32_t p) {
  double result = 1.0;
  for (double square = beta; p != 0; p >>= 1, square *= square) {
    if (p & 1) result *= square;
  }
  return static_cast<float>(result);
}

template <typename Tile>
HET_DEV void AddTo(const Tile& tile, const float* a, uint64_t n, float* s) {
  tile.ForEach(n, [&](uint64_t i) { s[i] += a[i]; });
}

template <typename Tile>
HET_DEV void DecayAndAdd(const Tile& tile, float decay, const float* a, uint64_t n, float* s) {
  tile.ForEach(n, [&](uint64_t i) { s[i] = decay * s[i] + a[i]; });
}

template <typename Tile>
HET_DEV void MergeOntoFtrl(const Tile& tile, const OptimizerView& o, uint32_t dim, const float* update,
                           const RowRef& row) {
  const uint64_t last = 2 * uint64_t{dim};
  const float lr = tile.One([&] {
    if (update[dim + last] != 0.0f) row.state[last] = update[dim + last];
    return row.state[last];
  });
  const float inverse_lr = 1.0f / lr;
  tile.ForEach(dim, [&](uint64_t i) {
    row.state[i] += update[dim + i];
    row.state[dim + i] += update[last + i];
    if (lr != 0.0f) row.value[i] = FtrlValue(o, inverse_lr, row.value[i], row.state[i], row.state[dim + i]);
  });
}

// row <- U(row), U = (ticks, update). All lanes must call it; there is no Sync at the end.
template <typename Tile>
HET_DEV void MergeOnto(const Tile& tile, const TableView& table, const float* update, uint32_t ticks,
                       const RowRef& row) {
  const OptimizerView& o = table.optimizer;
  const uint64_t dim = table.dim;
  if (o.kind == HET_DEV_FTRL) {
    MergeOntoFtrl(tile, o, table.dim, update, row);
    return;
  }
  AddTo(tile, update, dim, row.value);
  switch (o.kind) {
    case HET_DEV_MOMENTUM:
    case HET_DEV_RMSPROP:
      DecayAndAdd(tile, Power(o.decay, ticks), update + dim, dim, row.state);
      break;
    case HET_DEV_ADAM:
      if (o.decay != 0.0f) DecayAndAdd(tile, Power(o.decay, ticks), update + dim, dim, row.state);
      DecayAndAdd(tile, Power(o.decay2, ticks), update + dim + AdamV(o, dim), dim, row.state + AdamV(o, dim));
      AddTo(tile, update + 2 * dim + AdamV(o, dim), 1, row.state + dim + AdamV(o, dim));
      break;
    case HET_DEV_ADAGRAD:
      AddTo(tile, update + dim, dim, row.state);
      break;
    case HET_DEV_ROW_WISE_ADAGRAD:
      AddTo(tile, update + dim, 1, row.state);
      break;
    default:
      break;
  }
}

}  // namespace het::dev
