// What a warp of HetDevLookup and HetDevGather handles.
#pragma once

#include "het_tf/kernels/cuda/batch.h"
#include "het_tf/kernels/cuda/tile.h"

namespace het::dev {

// An item: 32 ids of a feature. The table's rows and those of the call, which are few, are handled one after
// the other: a pointer that may lead to either is one that the compiler does not know to be global memory.
template <typename Batch>
struct Item {
  HET_DEV Item(const Batch& batch, uint64_t item)
      : number(FeatureOfItem(batch, item)),
        feature(batch.feature(number)),
        use(batch.use(feature.use)),
        first((item - feature.first_item) * kItem) {}

  // On one lane. Returns false beyond the feature's end.
  HET_DEV bool Read(uint32_t lane, Position* p) const {
    p->at = first + lane;
    if (p->at >= feature.n) return false;
    p->feature = number;
    p->use = feature.use;
    p->key = static_cast<const int64_t*>(feature.ids)[p->at];
    p->padding = feature.has_padding != 0 && p->key == feature.padding_id;
    return true;
  }
  HET_DEV uint64_t PositionOf(uint32_t lane) const { return feature.begin + first + lane; }

  // Writes the table's rows to the feature's output.
  template <typename Tile, typename RowsOfLanes>
  HET_DEV void Write(const Tile& tile, const RowsOfLanes& rows) const {
    if (feature.rows.null()) return;
    tile.CopyRows(static_cast<float*>(feature.rows) + first * use.table.dim, use.table.dim,
                  static_cast<const float*>(use.table.records), use.table.record.stride, rows);
  }
  // On one lane. Writes a row of the call.
  HET_DEV void WriteOfCall(const CallRows& call, uint64_t row, uint32_t lane) const {
    if (feature.rows.null()) return;
    const float* from =
        static_cast<float*>(call.floats) + static_cast<uint64_t*>(call.begins)[row & ~kOfCall];
    float* to = static_cast<float*>(feature.rows) + (first + lane) * use.table.dim;
    for (uint32_t i = 0; i < use.table.dim; ++i) to[i] = from[i];
  }

  const uint32_t number;
  const FeatureView& feature;
  const UseView& use;
  const uint64_t first;  // its first id in the feature
};

}  // namespace het::dev
