// HetDevTake: exports updates of the dirty rows with the lowest keys.
#include <algorithm>
#include <vector>

#include "het_tf/kernels/cuda/number.h"
#include "het_tf/kernels/cuda/sort.h"
#include "het_tf/kernels/cuda/table.h"
#include "het_tf/kernels/cuda/tile.h"
#include "het_tf/kernels/cuda/updates.h"

namespace het::dev {
namespace {

// Lists dirty rows, unordered; without a list it counts them.
struct DirtyKernel {
  TableView table;
  Dev<uint32_t> n;
  Dev<uint64_t> keys;
  Dev<uint64_t> rows;

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t bucket) const {
    const uint8_t* digests = static_cast<uint8_t*>(table.digests) + bucket * kBucketSlots;
    const Slot* slots = static_cast<Slot*>(table.slots) + bucket * kBucketSlots;
    const uint32_t used = ~tile.Match32(digests, 0);
    tile.ForEach(kBucketSlots, [&](uint64_t i) {
      if ((used >> i & 1) == 0 || slots[i].ticks == 0) return;
      const uint32_t at = Tile::Append(static_cast<uint32_t*>(n));
      if (keys.null()) return;
      static_cast<uint64_t*>(keys)[at] = static_cast<uint64_t>(slots[i].key);
      static_cast<uint64_t*>(rows)[at] = bucket * kBucketSlots + i;
    });
  }
};

struct PickKernel {
  Dev<uint64_t> rows;
  Dev<uint32_t> order;
  DirtyRows to;

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t i) const {
    tile.Once([&] {
      static_cast<uint64_t*>(to.rows)[i] = static_cast<uint64_t*>(rows)[static_cast<uint32_t*>(order)[i]];
      static_cast<uint32_t*>(to.uses)[i] = 0;
    });
  }
};

struct CleanKernel {
  TableView table;
  Dev<uint64_t> rows;

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t i) const {
    tile.Once([&] {
      Slot& slot = static_cast<Slot*>(table.slots)[static_cast<uint64_t*>(rows)[i]];
      slot.base += slot.ticks;
      slot.ticks = 0;
    });
  }
};

void Take(Context& context, HetDevTable* table, uint64_t max_rows, HetDevStream stream,
          HetDevExport* updates) {
  *updates = HetDevExport{};
  context.Begin(stream);
  if (table->view.keep_updates == 0 || max_rows == 0) return context.Wait();
  HetDevUse use = {};
  use.table = table;
  const HetDevBatch batch = {&use, 1, nullptr, 0};
  const KernelBatch view(context, CheckBatch(HetDevCall(), batch));

  DirtyKernel kernel{table->view, context.Scratch<uint32_t>(1), Dev<uint64_t>(), Dev<uint64_t>()};
  uint32_t* n = context.HostScratch<uint32_t>(1);
  context.Fill(kernel.n, 0, 1);
  Launch<32>(context, "count dirty rows", table->view.buckets, kernel);
  context.CopyOut(n, kernel.n, 1);
  context.Wait();
  if (*n == 0) return;
  kernel.keys = context.Scratch<uint64_t>(*n);
  kernel.rows = context.Scratch<uint64_t>(*n);
  context.Fill(kernel.n, 0, 1);
  Launch<32>(context, "list dirty rows", table->view.buckets, kernel);
  const Sorted sorted = SortPairs(context, kernel.keys, Numbers(context, *n), *n);
  const uint64_t taken = std::min<uint64_t>(*n, max_rows);
  const DirtyRows rows = {sorted.keys, context.Scratch<uint32_t>(taken), context.Scratch<uint64_t>(taken)};
  Launch<4>(context, "pick rows", taken, PickKernel{kernel.rows, sorted.values, rows});
  Updates result;
  result.Reserve(context, batch, rows, {taken});
  result.Copy(context, view);
  Launch<4>(context, "clean rows", taken, CleanKernel{table->view, rows.rows});
  context.Wait();
  *updates = result.Export();
}

}  // namespace
}  // namespace het::dev

using namespace het::dev;  // NOLINT: the functions of the C ABI

int HetDevTake(HetDevContext* context, HetDevTable* table, uint64_t max_rows, HetDevStream stream,
               HetDevExport* updates) {
  return Guard([&] { Take(*context, table, max_rows, stream, updates); });
}
