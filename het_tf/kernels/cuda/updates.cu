#include "het_tf/kernels/cuda/number.h"
#include "het_tf/kernels/cuda/sort.h"
#include "het_tf/kernels/cuda/tile.h"
#include "het_tf/kernels/cuda/updates.h"

namespace het::dev {
namespace {

// keys[i] = uses[order[i]]
struct UsesInOrderKernel {
  Dev<uint32_t> uses;
  Dev<uint32_t> order;
  Dev<uint64_t> keys;
  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t i) const {
    tile.Once([&] {
      static_cast<uint64_t*>(keys)[i] = static_cast<uint32_t*>(uses)[static_cast<uint32_t*>(order)[i]];
    });
  }
};

struct CopyUpdatesKernel {
  BatchView batch;
  DirtyRows rows;
  Dev<uint32_t> order;
  Dev<uint64_t> begins;
  Dev<int64_t> keys;
  Dev<uint32_t> ticks;
  Dev<float> updates;

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t i) const {
    const uint32_t from = static_cast<uint32_t*>(order)[i];
    const uint32_t use = static_cast<uint32_t*>(rows.uses)[from];
    const TableView& table = static_cast<const UseView*>(batch.uses)[use].table;
    const RowRef ref = RowOfTable(table, static_cast<uint64_t*>(rows.rows)[from]);
    const uint64_t* begin = static_cast<uint64_t*>(begins) + uint64_t{use} * 2;
    tile.Once([&] {
      static_cast<int64_t*>(keys)[i] = ref.slot->key;
      static_cast<uint32_t*>(ticks)[i] = ref.slot->ticks;
    });
    tile.Copy(static_cast<float*>(updates) + begin[1] + (i - begin[0]) * table.row_floats, ref.update,
              table.row_floats);
  }
};

}  // namespace

void Updates::Reserve(Context& context, const HetDevBatch& batch, const BatchView& view,
                      const DirtyRows& rows, const std::vector<uint64_t>& counts) {
  rows_ = rows;
  std::vector<uint64_t> begins;
  for (uint32_t use = 0; use < batch.n_uses; ++use) {
    begins.push_back(n_);
    begins.push_back(floats_);
    n_ += counts[use];
    floats_ += counts[use] * batch.uses[use].table->view.row_floats;
    tables_ += counts[use] > 0 ? 1 : 0;
  }
  if (n_ == 0) return;
  begins_ = context.Upload(begins.data(), begins.size());
  keys_ = context.Scratch<int64_t>(n_);
  ticks_ = context.Scratch<uint32_t>(n_);
  updates_ = context.Scratch<float>(floats_);
  host_keys_ = context.HostScratch<int64_t>(n_);
  host_ticks_ = context.HostScratch<uint32_t>(n_);
  host_updates_ = context.HostScratch<float>(floats_);
  list_ = context.HostScratch<HetDevUpdates>(tables_);
  uint32_t filled = 0;
  for (uint32_t use = 0; use < batch.n_uses; ++use) {
    if (counts[use] == 0) continue;
    list_[filled++] = HetDevUpdates{use, counts[use], host_keys_ + begins[use * 2],
                                    host_ticks_ + begins[use * 2], host_updates_ + begins[use * 2 + 1]};
  }

  order_ = Numbers(context, n_);
  Dev<uint64_t> keys = context.Scratch<uint64_t>(n_);
  context.CopyWithin(keys, rows.keys, n_);
  SortPairs(context, &keys, &order_, n_);
  if (view.n_uses > 1) {
    Launch<8>(context, "uses of updates", n_, UsesInOrderKernel{rows.uses, order_, keys});
    SortPairs(context, &keys, &order_, n_, 32);
  }
}

void Updates::Copy(Context& context, const BatchView& view) {
  if (n_ == 0) return;
  Launch<8>(context, "copy updates", n_,
            CopyUpdatesKernel{view, rows_, order_, begins_, keys_, ticks_, updates_});
  context.CopyOut(host_keys_, keys_, n_);
  context.CopyOut(host_ticks_, ticks_, n_);
  context.CopyOut(host_updates_, updates_, floats_);
}

void Updates::Export(HetDevExport* result) const {
  result->n = tables_;
  result->of = list_;
}

}  // namespace het::dev
