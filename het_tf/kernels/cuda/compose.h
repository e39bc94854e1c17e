// The algebra of updates (core/optimizer.h) on the device. (Interface; branch k-apply writes what is behind it.)
#ifndef HET_TF_KERNELS_CUDA_COMPOSE_H_
#define HET_TF_KERNELS_CUDA_COMPOSE_H_

#include "het_tf/kernels/cuda/layout.h"
#include "het_tf/kernels/cuda/tile.h"

namespace het::dev {

// row <- U(row), U = (ticks, update): as Optimizer::MergeInto. All lanes call it; it does not wait for them.
template <typename Tile>
HET_DEV void MergeOnto(const Tile& tile, const TableView& table, const float* update, uint32_t /*ticks*/,
                       const RowRef& row) {
  tile.ForEach(table.dim, [&](uint64_t i) { row.value[i] += update[i]; });
  tile.ForEach(table.state_floats, [&](uint64_t i) { row.state[i] += update[table.dim + i]; });
}

}  // namespace het::dev

#endif  // HET_TF_KERNELS_CUDA_COMPOSE_H_
