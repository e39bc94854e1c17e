#include <type_traits>

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

template <typename Batch>
struct CopyUpdatesKernel {
  Batch batch;
  DirtyRows rows;
  Dev<uint32_t> order;
  LeavingView to;

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t i) const {
    const uint32_t from = static_cast<uint32_t*>(order)[i];
    const uint32_t use = static_cast<uint32_t*>(rows.uses)[from];
    const TableView& table = batch.use(use).table;
    const RowRef ref = RowOfTable(table, static_cast<uint64_t*>(rows.rows)[from]);
    tile.Once([&] { WriteLeaving(to, i, *ref.slot, ref.slot->ticks); });
    tile.Copy(LeavingUpdate(to, use, table, i), ref.update, table.row_floats);
  }
};

}  // namespace

Dev<uint32_t> OrderByUseAndKey(Context& context, Dev<uint64_t> keys, Dev<uint32_t> uses, uint64_t n,
                               uint32_t n_uses) {
  const Sorted sorted = SortPairs(context, keys, Numbers(context, n), n);
  if (n_uses < 2) return sorted.values;
  int bits = 1;
  while (n_uses >> bits != 0) ++bits;
  Launch<4>(context, "uses of updates", n, UsesInOrderKernel{uses, sorted.values, sorted.keys});
  return SortPairs(context, sorted.keys, sorted.values, n, bits).values;
}

void Leaving::Reserve(Context& context, const HetDevBatch& batch, const std::vector<uint64_t>& counts) {
  std::vector<uint64_t> begins;
  for (uint32_t use = 0; use < batch.n_uses; ++use) {
    begins.push_back(n_);
    begins.push_back(floats_);
    n_ += counts[use];
    floats_ += counts[use] * batch.uses[use].table->view.row_floats;
    tables_ += counts[use] > 0 ? 1 : 0;
  }
  if (n_ == 0) return;
  heads_ = context.Scratch<char>(HeadBytes());
  view_.begins = context.Upload(begins.data(), begins.size());
  view_.keys = Dev<int64_t>(reinterpret_cast<int64_t*>(heads_.raw()));
  view_.clocks = view_.keys.Plus(n_);
  view_.ticks = Dev<uint32_t>(reinterpret_cast<uint32_t*>(view_.clocks.Plus(n_).raw()));
  view_.updates = context.Scratch<float>(floats_);
  host_heads_ = context.HostScratch<char>(HeadBytes());
  host_updates_ = context.HostScratch<float>(floats_);
  list_ = context.HostScratch<HetDevUpdates>(tables_);
  List(batch, counts);
}

void Leaving::List(const HetDevBatch& batch, const std::vector<uint64_t>& counts) {
  const auto* keys = reinterpret_cast<const int64_t*>(host_heads_);
  const int64_t* clocks = keys + n_;
  const auto* ticks = reinterpret_cast<const uint32_t*>(clocks + n_);
  const float* updates = host_updates_;
  HetDevUpdates* of_use = list_;
  for (uint32_t use = 0; use < batch.n_uses; ++use) {
    const uint64_t n = counts[use];
    if (n > 0) *of_use++ = HetDevUpdates{use, n, keys, ticks, clocks, updates};
    keys += n;
    ticks += n;
    clocks += n;
    updates += n * batch.uses[use].table->view.row_floats;
  }
}

void Leaving::Copy(Context& context) {
  context.CopyOut(host_heads_, heads_, HeadBytes());
  context.CopyOut(host_updates_, view_.updates, floats_);
}

void Updates::Reserve(Context& context, const HetDevBatch& batch, const DirtyRows& rows,
                      const std::vector<uint64_t>& counts) {
  rows_ = rows;
  leaving_.Reserve(context, batch, counts);
  if (leaving_.n() > 0) order_ = OrderByUseAndKey(context, rows.keys, rows.uses, leaving_.n(), batch.n_uses);
}

void Updates::Copy(Context& context, const KernelBatch& batch) {
  if (leaving_.n() == 0) return;
  batch.With([&](const auto& view) {
    Launch<8>(context, "copy updates", leaving_.n(),
              CopyUpdatesKernel<std::decay_t<decltype(view)>>{view, rows_, order_, leaving_.view()});
  });
  leaving_.Copy(context);
}

}  // namespace het::dev
