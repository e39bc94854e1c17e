// HetDevLookup and HetDevGather: fused probe and gather, with one tile for each position.
#include <string>

#include "het_tf/kernels/cuda/batch.h"
#include "het_tf/kernels/cuda/probe.h"
#include "het_tf/kernels/cuda/tile.h"
#include "het_tf/kernels/cuda/wanted.h"

namespace het::dev {
namespace {

// Counts of unique keys that a use of a table met. Striped over lines of 128 bytes, so that the device does
// not contend for one number.
enum Met : uint32_t { kAbsent, kInTable, kInCall, kMetKinds };
constexpr uint32_t kStripes = 256;
HET_HOST_DEVICE inline uint32_t StripeWords(uint32_t n_uses) { return (n_uses * kMetKinds + 31) / 32 * 32; }

constexpr uint16_t kMostOfLfu = 65535;
constexpr uint16_t kMostOfLightLfu = 8;

// Returns Slot::used after a lookup that found `used`.
HET_DEV uint64_t Used(uint64_t used, uint32_t visit, const UseView& use, bool training) {
  const uint16_t most = use.table.policy == HET_DEV_LIGHT_LFU ? kMostOfLightLfu : kMostOfLfu;
  const uint64_t more = training && FrequencyOf(used) < most ? kOneUse : 0;
  return (used & ~kVisitBits) + more + visit;
}

HET_DEV Met MetAt(uint64_t row) { return (row & kOfCall) != 0 ? kInCall : kInTable; }

HET_DEV float* OutputOf(const FeatureView& feature, uint64_t at, uint32_t dim) {
  return feature.rows.null() ? nullptr : static_cast<float*>(feature.rows) + at * dim;
}

struct LookupKernel {
  BatchView batch;
  WantedView wanted;  // its counts: [kStripes][StripeWords], each holding [n_uses][kMetKinds]
  Dev<uint8_t> left_out;
  int training;

  HET_DEV void Count(uint64_t position, uint32_t use, Met kind) const {
    const uint64_t stripe = position / 8 % kStripes;
    uint32_t* counts = static_cast<uint32_t*>(wanted.n) + 1 + stripe * StripeWords(batch.n_uses);
    AtomicAdd(counts + use * kMetKinds + kind, 1u);
  }

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t position) const {
    const Position p = PositionAt(batch, position);
    const UseView& use = static_cast<const UseView*>(batch.uses)[p.use];
    float* out = OutputOf(static_cast<const FeatureView*>(batch.features)[p.feature], p.at, use.table.dim);
    uint8_t* left = static_cast<uint8_t*>(left_out) + position;
    if (p.padding) {
      if (out != nullptr) tile.Fill(out, 0, use.table.dim);
      tile.Once([&] { *left = 0; });
      return;
    }
    const uint64_t row = Find(tile, batch, p.use, p.key);
    if (row == kNowhere) {
      tile.Once([&] {
        *left = 1;
        if (WantOnce(wanted, batch, position, p, HET_DEV_NO_BASE)) Count(position, p.use, kAbsent);
      });
      return;
    }
    const RowRef ref = RowAt(batch, p.use, row);
    const uint64_t used = AtomicLoad(&ref.slot->used);
    const bool invalid = (used & kInvalid) != 0;
    const bool look = invalid || use.check != 0;
    if (!look && out != nullptr) tile.Copy(out, ref.value, use.table.dim);
    tile.Once([&] {
      *left = look ? 1 : 0;
      // Most occurrences of a hot row find it visited and need no atomic. The first few compute the same new
      // word from the same old one, so any of them may be first.
      if (VisitOf(used) == batch.visit) return;
      const uint64_t next = Used(used, batch.visit, use, training != 0);
      if (VisitOf(AtomicExchange(&ref.slot->used, next)) == batch.visit) return;
      Count(position, p.use, MetAt(row));
      if (training != 0) ref.slot->stamp = use.stamp;
      if (look) AppendWanted(wanted, p.use, p.key, invalid ? HET_DEV_NO_BASE : ref.slot->base);
    });
  }
};

struct GatherKernel {
  BatchView batch;
  Dev<uint8_t> left_out;
  Dev<uint32_t> missing;  // the first position whose key is absent

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t position) const {
    if (static_cast<uint8_t*>(left_out)[position] == 0) return;
    const Position p = PositionAt(batch, position);
    const UseView& use = static_cast<const UseView*>(batch.uses)[p.use];
    const uint64_t row = Find(tile, batch, p.use, p.key);
    if (row == kNowhere) {
      tile.Once([&] { AtomicMin(static_cast<uint32_t*>(missing), static_cast<uint32_t>(position)); });
      return;
    }
    float* out = OutputOf(static_cast<const FeatureView*>(batch.features)[p.feature], p.at, use.table.dim);
    if (out != nullptr) tile.Copy(out, RowAt(batch, p.use, row).value, use.table.dim);
  }
};

void Lookup(Context& context, HetDevCall& call, const HetDevBatch& batch, int training, HetDevStream stream,
            HetDevWanted* wanted) {
  *wanted = HetDevWanted{};
  context.Begin(stream);
  BatchView view = MakeBatch(context, call, batch, false);
  view.visit = context.NextVisit();
  if (call.left_out.bytes() < view.positions) {
    call.looked_up = false;
    call.left_out = context.Allocate(view.positions + view.positions / 4, "a call");
  }
  const uint32_t counts = kStripes * StripeWords(batch.n_uses);
  LookupKernel kernel{view, MakeWanted(context, view, counts), call.left_out.as<uint8_t>(), training};
  uint64_t* reads = context.HostScratch<uint64_t>(batch.n_uses);
  uint64_t* hits = context.HostScratch<uint64_t>(batch.n_uses);

  for (uint32_t use = 0; use < batch.n_uses; ++use) ClearOldVisits(context, batch.uses[use].table);
  ClearOldVisits(context, &call);
  Launch<8>(context, "lookup", view.positions, kernel);
  call.positions = view.positions;
  call.looked_up = true;
  const uint32_t* met = ReadWanted(context, kernel.wanted, wanted);

  bool more_work = false;
  for (uint32_t use = 0; use < batch.n_uses; ++use) {
    uint64_t sums[kMetKinds] = {};
    for (uint32_t stripe = 0; stripe < kStripes; ++stripe) {
      for (uint32_t kind = 0; kind < kMetKinds; ++kind) {
        sums[kind] += met[stripe * StripeWords(batch.n_uses) + use * kMetKinds + kind];
      }
    }
    hits[use] = sums[kInTable] + sums[kInCall];
    reads[use] = hits[use] + sums[kAbsent];
    if (training != 0) more_work |= CountFirstUses(context, batch.uses[use].table, sums[kInTable]);
  }
  wanted->reads = reads;
  wanted->hits = hits;
  if (more_work) context.End();
}

void Gather(Context& context, HetDevCall& call, const HetDevBatch& batch, HetDevStream stream) {
  context.Begin(stream);
  const BatchView view = MakeBatch(context, call, batch, false);
  if (!call.looked_up || call.positions != view.positions) {
    Fail(HET_DEV_INVALID, "HetDevGather: the batch has " + std::to_string(view.positions) +
                              " ids, and the call " +
                              (call.looked_up ? "has looked up " + std::to_string(call.positions)
                                              : std::string("has looked up none")) +
                              ". Remedy: HetDevLookup with this batch first");
  }
  GatherKernel kernel{view, call.left_out.as<uint8_t>(), context.Scratch<uint32_t>(1)};
  uint32_t* missing = context.HostScratch<uint32_t>(1);
  context.Fill(kernel.missing, 0xff, 1);
  Launch<8>(context, "gather", view.positions, kernel);
  context.CopyOut(missing, kernel.missing, 1);
  context.Wait();
  if (*missing == kEmpty) return;
  uint32_t feature = 0;
  uint64_t at = *missing;
  while (at >= batch.features[feature].n) at -= batch.features[feature++].n;
  Fail(HET_DEV_INVALID, "HetDevGather: feature " + std::to_string(feature) + ", id number " +
                            std::to_string(at) + " of table '" +
                            batch.uses[batch.features[feature].use].table->name +
                            "' has no row. Remedy: install every row that was wanted");
}

}  // namespace
}  // namespace het::dev

using namespace het::dev;  // NOLINT: the functions of the C ABI

int HetDevLookup(HetDevContext* context, HetDevCall* call, const HetDevBatch* batch, int training,
                 HetDevStream stream, HetDevWanted* wanted) {
  return Guard([&] { Lookup(*context, *call, *batch, training, stream, wanted); });
}

int HetDevGather(HetDevContext* context, HetDevCall* call, const HetDevBatch* batch, HetDevStream stream) {
  return Guard([&] { Gather(*context, *call, *batch, stream); });
}

int HetDevCreateCall(HetDevContext* /*context*/, HetDevCall** call) {
  return Guard([&] {
    *call = nullptr;
    *call = new HetDevCall;
  });
}

void HetDevDestroyCall(HetDevContext* context, HetDevCall* call) {
  if (call == nullptr) return;
  (void)Guard([&] { context->Finish(); });  // waits for kernels that use it
  (void)Guard([&] { delete call; });
}

void HetDevResetCall(HetDevContext* /*context*/, HetDevCall* call) {
  call->rows.n = 0;
  call->floats_used = 0;
  call->looked_up = false;
  call->summed_at = 0;
}
