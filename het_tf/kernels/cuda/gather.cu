// HetDevGather: rows that HetDevLookup could not give, on the caller's stream.
#include <algorithm>
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
  Dev<uint32_t> counts;
  Dev<uint32_t> report;  // page-locked: kReported of them
  // The largest complement of a position whose key is absent, and 1 if a row was found that is not pinned by
  // this step, or not valid; 0: there is none. Then the items that are done.
  enum Count : uint32_t { kAbsent, kUnpinned, kReported, kDone = kReported, kCounts };

  // On one lane, for a row that the lookup has not found.
  HET_DEV void Found(const UseView& use, const Slot& slot, uint64_t row, uint64_t position) const {
    if (slot.stamp < use.stamp || (slot.used & kInvalid) != 0)
      AtomicStore(static_cast<uint32_t*>(counts) + kUnpinned, 1u);
    uint64_t* word = static_cast<uint64_t*>(found) + position;
    *word = FoundWord(FeatureIn(*word), PlaceOf(batch, use, row)) | kLeftOut;
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
      const uint64_t word = static_cast<uint64_t*>(found)[item.PositionOf(lane)];
      const uint64_t place = PlaceIn(word);
      if (place != kNoPlace && (word & kLeftOut) == 0) return;
      uint64_t row = place == kNoPlace ? kNowhere : RowOf(batch, item.use, place);
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
        AtomicMax(static_cast<uint32_t*>(counts) + kAbsent, ~static_cast<uint32_t>(item.PositionOf(lane)));
        return;
      }
      Found(item.use, static_cast<const Slot*>(batch.call.slots)[row & ~kOfCall], row, item.PositionOf(lane));
      item.WriteOfCall(batch.call, row, lane);
    });
    uint32_t* words = counts;
    if (!tile.LastOfAll(words + kDone, static_cast<uint32_t>(batch.items))) return;
    tile.ForEach(kReported,
                 [&](uint64_t i) { static_cast<uint32_t*>(report)[i] = AtomicExchange(words + i, 0u); });
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
  using Counts = GatherKernel<BatchView>;
  const Dev<uint32_t> counts = context.Zeros(Counts::kCounts);
  uint32_t* report = context.HostScratch<uint32_t>(Counts::kReported);
  std::fill_n(report, Counts::kReported, 0);  // without ids no kernel runs
  const bool kept = call.kept.Holds(batch);
  kernel_batch.With([&](const auto& view) {
    Launch<32>(context, "gather", sizes.items,
               GatherKernel<std::decay_t<decltype(view)>>{view, call.found.as<uint64_t>(), kept ? 1 : 0,
                                                          counts, Dev<uint32_t>(report)});
  });
  context.Wait();
  if (report[Counts::kAbsent] == 0) {
    if (kept) call.kept.Gathered(report[Counts::kUnpinned] == 0);
    return;
  }
  uint32_t feature = 0;
  uint64_t at = ~report[Counts::kAbsent];
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
