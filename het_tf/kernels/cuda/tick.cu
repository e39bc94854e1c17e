// HetDevTick: one tick for each row that HetDevSum has summed, one tile a row. Updates that leave are written
// to where they leave from, and nowhere else.
#include <utility>

#include "het_tf/kernels/cuda/batch.h"
#include "het_tf/kernels/cuda/number.h"
#include "het_tf/kernels/cuda/optimizer_tick.h"
#include "het_tf/kernels/cuda/sort.h"
#include "het_tf/kernels/cuda/sum_view.h"
#include "het_tf/kernels/cuda/tile.h"

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

// rank_at[entry] = the place in the export of the row whose segment begins there
struct RankKernel {
  Dev<uint32_t> due;
  Dev<uint32_t> order;
  Dev<uint32_t> rank_at;

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t i) const {
    tile.Once([&] {
      const uint32_t entry = static_cast<uint32_t*>(due)[static_cast<uint32_t*>(order)[i]];
      static_cast<uint32_t*>(rank_at)[entry] = static_cast<uint32_t>(i);
    });
  }
};

// Updates that leave, in order of (use, key), in device memory.
struct DueView {
  Dev<uint32_t> rank_at;
  Dev<const uint64_t> begins;  // of each use: its first row here, and its first float
  Dev<int64_t> keys;
  Dev<uint32_t> ticks;
  Dev<float> updates;
};

// Of rows whose optimizer is of this kind.
template <int kKind>
struct TickKernel {
  BatchView batch;
  Segments segments;
  DueView due;

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t entry) const {
    if (!BeginsSegment(segments, entry)) return;
    const Place place = PlaceAt(segments, batch, entry);
    const UseView& use = static_cast<const UseView*>(batch.uses)[place.use];
    if (use.table.optimizer.kind != kKind) return;
    const RowRef ref = RowAt(batch, place.use, place.row);
    const uint32_t ticks = ref.slot->ticks;
    const bool leaves = WillLeave(use, place, ticks);
    TickRow row;
    row.gradient = static_cast<float*>(segments.sums) + entry * segments.sum_stride;
    row.value = ref.value;
    row.state = ref.state;
    row.before = ticks > 0 ? ref.update : nullptr;
    row.update = ref.update;
    uint32_t rank = 0;
    if (leaves) {
      const uint64_t* begin = static_cast<const uint64_t*>(due.begins) + uint64_t{place.use} * 2;
      rank = static_cast<uint32_t*>(due.rank_at)[entry];
      row.update = static_cast<float*>(due.updates) + begin[1] + (rank - begin[0]) * use.table.row_floats;
    }
    TickRowOnce<kKind>(tile, use.table.optimizer, use.table.dim, use.learning_rate, row);
    tile.Sync();  // all lanes have read the slot
    tile.Once([&] {
      ref.slot->ticks = leaves ? 0 : ticks + 1;
      if (!leaves) return;
      ref.slot->base += int64_t{ticks} + 1;
      static_cast<int64_t*>(due.keys)[rank] = ref.slot->key;
      static_cast<uint32_t*>(due.ticks)[rank] = ticks + 1;
    });
  }
};

// The host's side of what leaves.
class Due {
 public:
  // Takes all the memory, and finds the order.
  void Reserve(Context& context, const HetDevBatch& batch, const SumView& sums) {
    std::vector<uint64_t> begins;
    for (uint32_t u = 0; u < sums.n_uses; ++u) {
      begins.push_back(n_);
      begins.push_back(floats_);
      n_ += sums.due_of_use[u];
      floats_ += sums.due_of_use[u] * batch.uses[u].table->view.row_floats;
      tables_ += sums.due_of_use[u] > 0;
    }
    if (n_ == 0) return;
    view_.begins = Dev<const uint64_t>(context.Upload(begins.data(), begins.size()).raw());
    view_.rank_at = context.Scratch<uint32_t>(sums.positions);
    view_.keys = context.Scratch<int64_t>(n_);
    view_.ticks = context.Scratch<uint32_t>(n_);
    view_.updates = context.Scratch<float>(floats_);
    keys_ = context.HostScratch<int64_t>(n_);
    ticks_ = context.HostScratch<uint32_t>(n_);
    updates_ = context.HostScratch<float>(floats_);
    list_ = context.HostScratch<HetDevUpdates>(tables_);
    uint32_t filled = 0;
    for (uint32_t u = 0; u < sums.n_uses; ++u) {
      const uint64_t n = sums.due_of_use[u], first = begins[2 * u];
      if (n > 0) list_[filled++] = {u, n, keys_ + first, ticks_ + first, updates_ + begins[2 * u + 1]};
    }
    Dev<uint32_t> order = Numbers(context, n_);
    Dev<uint64_t> keys = context.Scratch<uint64_t>(n_);
    context.CopyWithin(keys, sums.due_keys, n_);
    SortPairs(context, &keys, &order, n_);
    if (sums.n_uses > 1) {
      int bits = 1;
      while (sums.n_uses >> bits != 0) ++bits;
      Launch<4>(context, "uses of what is due", n_, UsesInOrderKernel{sums.due_uses, order, keys});
      SortPairs(context, &keys, &order, n_, bits);
    }
    Launch<4>(context, "ranks of what is due", n_, RankKernel{sums.due, order, view_.rank_at});
  }
  void Copy(Context& context) {
    context.CopyOut(keys_, view_.keys, n_);
    context.CopyOut(ticks_, view_.ticks, n_);
    context.CopyOut(updates_, view_.updates, floats_);
  }
  const DueView& view() const { return view_; }
  bool any() const { return n_ > 0; }
  HetDevExport Export() const { return {tables_, list_}; }

 private:
  DueView view_;
  uint64_t n_ = 0;
  uint64_t floats_ = 0;
  uint32_t tables_ = 0;
  int64_t* keys_ = nullptr;
  uint32_t* ticks_ = nullptr;
  float* updates_ = nullptr;
  HetDevUpdates* list_ = nullptr;
};

template <int... kKinds>
void TickKinds(Context& context, const BatchView& view, const SumView& sums, const DueView& due,
               uint32_t kinds, std::integer_sequence<int, kKinds...>) {
  const auto tick = [&](const auto& kernel, int kind) {
    if ((kinds >> kind & 1) != 0) Launch<8>(context, "ticks", sums.positions, kernel);
  };
  (tick(TickKernel<kKinds>{view, SegmentsOf(sums), due}, kKinds), ...);
}

void Tick(Context& context, HetDevCall& call, const HetDevBatch& batch, HetDevStream stream,
          HetDevExport* due) {
  *due = HetDevExport{};
  if (call.summed_at == 0 || call.summed_at != context.calls()) {
    Fail(HET_DEV_INVALID,
         "HetDevTick has to follow a HetDevSum of its call that wanted no rows and met no NaN or Inf. "
         "Remedy: sum "
         "again");
  }
  context.Continue(stream);
  call.summed_at = 0;
  const BatchView view = MakeBatch(context, call, batch, false);
  const SumView& sums = call.summed;
  if (view.positions != sums.positions || view.n_uses != sums.n_uses) {
    Fail(HET_DEV_INVALID, "HetDevTick has " + std::to_string(view.positions) + " ids of " +
                              std::to_string(view.n_uses) + " tables; HetDevSum had " +
                              std::to_string(sums.positions) + " of " + std::to_string(sums.n_uses) +
                              ". Remedy: give both the same batch");
  }
  Due leaving;
  leaving.Reserve(context, batch, sums);
  uint32_t kinds = 0;
  for (uint32_t u = 0; u < batch.n_uses; ++u) kinds |= 1u << batch.uses[u].table->view.optimizer.kind;
  TickKinds(context, view, sums, leaving.view(), kinds, std::make_integer_sequence<int, HET_DEV_FTRL + 1>());
  if (!leaving.any()) {
    context.End();
    return;
  }
  leaving.Copy(context);
  context.Wait();
  *due = leaving.Export();
}

}  // namespace
}  // namespace het::dev

using namespace het::dev;  // NOLINT: the functions of the C ABI

int HetDevTick(HetDevContext* context, HetDevCall* call, const HetDevBatch* batch, HetDevStream stream,
               HetDevExport* due) {
  return Guard([&] { Tick(*context, *call, *batch, stream, due); });
}
