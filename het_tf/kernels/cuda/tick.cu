// HetDevTick: one tick for each row that HetDevSum has summed, with one tile for each row. A due update is
// written only to its place in the export.
#include <type_traits>
#include <utility>

#include "het_tf/kernels/cuda/batch.h"
#include "het_tf/kernels/cuda/optimizer_tick.h"
#include "het_tf/kernels/cuda/sum_view.h"
#include "het_tf/kernels/cuda/tile.h"
#include "het_tf/kernels/cuda/updates.h"

namespace het::dev {
namespace {

// rank_at[entry] = position in the export of the row whose segment begins there
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

struct DueView {
  Dev<uint32_t> rank_at;
  LeavingView to;
};

// Ticks rows whose optimizer is of this kind.
template <int kKind, typename Batch>
struct TickKernel {
  Batch batch;
  Segments segments;
  DueView due;

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t entry) const {
    const uint64_t place = segments.PlaceAt(entry);
    if (place >= batch.places() || (entry > 0 && segments.PlaceAt(entry - 1) == place)) return;
    if (static_cast<uint32_t*>(segments.order)[entry] == kEmpty) return;
    const RowOfSegment of = RowOfEntry(segments, batch, entry);
    const UseView& use = batch.use(of.use);
    if (use.table.optimizer.kind != kKind) return;
    const RowRef ref = RowAt(batch, of.use, of.row);
    const uint32_t ticks = ref.slot->ticks;
    const bool leaves = WillLeave(use, of, *ref.slot);
    TickRow row;
    row.gradient = segments.SumAt(entry);
    row.value = ref.value;
    row.state = ref.state;
    row.age = static_cast<float>(AgeOf(ref.slot->base + ticks));
    row.before = ticks > 0 ? ref.update : nullptr;
    row.update = ref.update;
    uint32_t rank = 0;
    if (leaves) {
      rank = static_cast<uint32_t*>(due.rank_at)[entry];
      row.update = LeavingUpdate(due.to, of.use, use.table, rank);
    }
    TickRowOnce<kKind>(tile, use.table.optimizer, use.table.dim, use.learning_rate, row);
    tile.Sync();  // all lanes have read the slot
    tile.Once([&] {
      ref.slot->ticks = leaves ? 0 : ticks + 1;
      if (!leaves) return;
      WriteLeaving(due.to, rank, *ref.slot, ticks + 1);
      ref.slot->base += int64_t{ticks} + 1;
    });
  }
};

// Host side: the export of due updates.
class Due {
 public:
  // Allocates all memory, and computes the order.
  void Reserve(Context& context, const HetDevBatch& batch, const SumView& sums) {
    leaving_.Reserve(context, batch, sums.due_of_use);
    if (!any()) return;
    rank_at_ = context.Scratch<uint32_t>(sums.positions);
    const uint64_t n = leaving_.n();
    const Dev<uint32_t> order = OrderByUseAndKey(context, sums.due_keys, sums.due_uses, n, sums.n_uses);
    Launch<4>(context, "ranks of what is due", n, RankKernel{sums.due, order, rank_at_});
  }
  void Copy(Context& context) { leaving_.Copy(context); }
  DueView view() const { return {rank_at_, leaving_.view()}; }
  bool any() const { return leaving_.n() > 0; }
  HetDevExport Export() const { return leaving_.Export(); }

 private:
  Dev<uint32_t> rank_at_;
  Leaving leaving_;
};

template <int... kKinds>
void TickKinds(Context& context, const KernelBatch& batch, const SumView& sums, const DueView& due,
               uint32_t kinds, std::integer_sequence<int, kKinds...>) {
  const auto tick = [&](const auto& kernel, int kind) {
    if ((kinds >> kind & 1) != 0) Launch<8>(context, "ticks", sums.positions, kernel);
  };
  batch.With([&](const auto& view) {
    (tick(TickKernel<kKinds, std::decay_t<decltype(view)>>{view, SegmentsOf(sums), due}, kKinds), ...);
  });
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
  const KernelBatch view(context, CheckBatch(call, batch));
  const SumView& sums = call.summed;
  const BatchSizes& sizes = view.sizes();
  if (sizes.positions != sums.positions || sizes.n_uses != sums.n_uses ||
      sizes.n_features != sums.n_features) {
    const auto described = [](uint64_t ids, uint32_t features, uint32_t tables) {
      return std::to_string(ids) + " ids of " + std::to_string(features) + " features and " +
             std::to_string(tables) + " tables";
    };
    Fail(HET_DEV_INVALID, "HetDevTick has " + described(sizes.positions, sizes.n_features, sizes.n_uses) +
                              "; HetDevSum had " + described(sums.positions, sums.n_features, sums.n_uses) +
                              ". Remedy: give both the same batch");
  }
  Due leaving;
  leaving.Reserve(context, batch, sums);
  uint32_t kinds = 0;
  for (uint32_t u = 0; u < batch.n_uses; ++u) kinds |= 1u << batch.uses[u].table->view.optimizer.kind;
  TickKinds(context, view, sums, leaving.view(), kinds, std::make_integer_sequence<int, HET_DEV_FTRL + 1>());
  if (leaving.any()) leaving.Copy(context);
  context.End();
  *due = leaving.Export();
}

}  // namespace
}  // namespace het::dev

using namespace het::dev;  // NOLINT: the functions of the C ABI

int HetDevTick(HetDevContext* context, HetDevCall* call, const HetDevBatch* batch, HetDevStream stream,
               HetDevExport* due) {
  return Guard([&] { Tick(*context, *call, *batch, stream, due); });
}

int HetDevCollect(HetDevContext* context) {
  return Guard([&] { context->Settle(); });
}
