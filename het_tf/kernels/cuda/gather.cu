// HetDevGather: rows that HetDevLookup could not give, on the caller's stream.
#include <string>
#include <type_traits>
#include <utility>

#include "het_tf/kernels/cuda/batch.h"
#include "het_tf/kernels/cuda/item.h"
#include "het_tf/kernels/cuda/probe.h"

namespace het::dev {
namespace {

template <typename Batch>
struct GatherKernel {
  Batch batch;
  Dev<uint64_t> found;
  int kept;  // where the lookup found rows they still are
  // The first position whose key is absent; and 0 if a row was found that is not pinned by this step, or not
  // valid.
  Dev<uint32_t> report;

  // On one lane, for a row that the lookup has not found.
  HET_DEV void Found(const UseView& use, const Slot& slot, uint64_t row, uint64_t position) const {
    if (slot.stamp < use.stamp || (slot.used & kInvalid) != 0)
      AtomicStore(static_cast<uint32_t*>(report) + 1, 0u);
    static_cast<uint64_t*>(found)[position] = row | kLeftOut;
  }

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t number) const {
    const Item<Batch> item(batch, number);
    typename Tile::template Lanes<uint32_t> rows;
    typename Tile::template Lanes<uint8_t> absent;
    tile.ForLanes([&](uint32_t lane) {
      rows[lane] = kNoRow;
      absent[lane] = 0;
      Position p;
      if (!item.Read(lane, &p) || p.padding) return;
      const uint64_t at = static_cast<uint64_t*>(found)[item.PositionOf(lane)];
      if (at != kNowhere && (at & kLeftOut) == 0) return;
      uint64_t row = at == kNowhere ? kNowhere : at & ~kLeftOut;
      if (row == kNowhere || kept == 0) {
        row = FindInTable(item.use.table, p.key);
        if (row != kNowhere) {
          Found(item.use, static_cast<const Slot*>(item.use.table.slots)[row], row, item.PositionOf(lane));
        }
      }
      absent[lane] = row == kNowhere || (row & kOfCall) != 0 ? 1 : 0;
      if (absent[lane] == 0) rows[lane] = static_cast<uint32_t>(row);
    });
    item.Write(tile, rows);
    tile.ForLanes([&](uint32_t lane) {
      Position p;
      if (absent[lane] == 0 || !item.Read(lane, &p)) return;
      const uint64_t row = FindInCall(batch.call, p.use, p.key);
      if (row == kNowhere) {
        AtomicMin(static_cast<uint32_t*>(report), static_cast<uint32_t>(item.PositionOf(lane)));
        return;
      }
      Found(item.use, static_cast<const Slot*>(batch.call.slots)[row & ~kOfCall], row, item.PositionOf(lane));
      item.WriteOfCall(batch.call, row, lane);
    });
  }
};

void Gather(Context& context, HetDevCall& call, const HetDevBatch& batch, HetDevStream stream) {
  context.Begin(stream);
  HostBatch host = CheckBatch(call, batch);
  const BatchSizes sizes = host.sizes;
  host.SetIds(call.ids.as<const int64_t>());
  const KernelBatch kernel_batch(context, std::move(host));
  if (!call.looked_up || call.positions != sizes.positions) {
    Fail(HET_DEV_INVALID, "HetDevGather: the batch has " + std::to_string(sizes.positions) +
                              " ids, and the call " +
                              (call.looked_up ? "has looked up " + std::to_string(call.positions)
                                              : std::string("has looked up none")) +
                              ". Remedy: HetDevLookup with this batch first");
  }
  const Dev<uint32_t> report = context.Scratch<uint32_t>(2);
  uint32_t* read = context.HostScratch<uint32_t>(2);
  context.Fill(report, 0xff, 2);
  const bool kept = call.kept.Holds(batch);
  kernel_batch.With([&](const auto& view) {
    Launch<32>(
        context, "gather", sizes.items,
        GatherKernel<std::decay_t<decltype(view)>>{view, call.found.as<uint64_t>(), kept ? 1 : 0, report});
  });
  context.CopyOut(read, report, 2);
  context.Wait();
  if (read[0] == kEmpty) {
    if (kept) call.kept.Gathered(read[1] == kEmpty);
    return;
  }
  uint32_t feature = 0;
  uint64_t at = read[0];
  while (at >= batch.features[feature].n) at -= batch.features[feature++].n;
  Fail(HET_DEV_INVALID, "HetDevGather: feature " + std::to_string(feature) + ", id number " +
                            std::to_string(at) + " of table '" +
                            batch.uses[batch.features[feature].use].table->name +
                            "' has no row. Remedy: install every row that was wanted");
}

}  // namespace
}  // namespace het::dev

using namespace het::dev;  // NOLINT: the functions of the C ABI

int HetDevGather(HetDevContext* context, HetDevCall* call, const HetDevBatch* batch, HetDevStream stream) {
  return Guard([&] { Gather(*context, *call, *batch, stream); });
}
