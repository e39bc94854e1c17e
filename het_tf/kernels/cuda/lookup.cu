// HetDevLookup: a lane finds a row, on the context's own stream; then a warp copies the rows
// of its 32 ids, on the caller's. The host waits for the first alone. Where each row was found is kept in the
// call for the second, and for HetDevSum; so are the ids, which the first reads from page-locked memory.
//
// A lookup reads an id over the link, a sector of digests, a slot, 8 bytes of where it was and the row's
// value, and writes the id, the slot, the 8 bytes and the row. Of these the digests and the slot wait for
// each other: 32 ids a warp keep enough of them in flight (docs/gpu.md).
#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

#include "het_tf/core/cache/pull_rule.h"
#include "het_tf/kernels/cuda/batch.h"
#include "het_tf/kernels/cuda/item.h"
#include "het_tf/kernels/cuda/probe.h"
#include "het_tf/kernels/cuda/wanted.h"

namespace het::dev {
namespace {

// Counts of unique keys that a use of a table met. Striped over lines of 128 bytes, so that the device does
// not contend for one number; the last warp adds them up for the host.
enum Met : uint32_t { kAbsent, kInTable, kInCall, kInvalidHere, kMetKinds, kNothing };
constexpr uint32_t kStripes = 16;
HET_HOST_DEVICE inline uint32_t StripeWords(uint32_t n_uses) { return (n_uses * kMetKinds + 31) / 32 * 32; }

constexpr uint16_t kMostOfLfu = 65535;

// Returns Slot::used after a lookup that found `used`.
HET_DEV uint64_t Used(uint64_t used, uint32_t visit, bool training) {
  const uint64_t more = training && FrequencyOf(used) < kMostOfLfu ? kOneUse : 0;
  return (used & ~kVisitBits) + more + visit;
}

// Whether the subscription of a row of this key holds, if it has one.
HET_DEV bool Trusts(const UseView& use, int64_t key) {
  if (use.trust != kTrustsSome) return use.trust == kTrustsAll;
  return static_cast<const uint8_t*>(use.trusted)[use.table.layout.OfKey(key)] != 0;
}

template <typename Batch>
struct LookupKernel {
  Batch batch;
  // Behind its `n`: items that are done, then [kStripes][StripeWords], each [n_uses][kMetKinds].
  WantedView wanted;
  Dev<uint32_t> report;  // page-locked: the number of wanted rows, then [n_uses][kMetKinds]
  Dev<uint64_t> found;
  Dev<int64_t> ids;  // of the call: a copy of the page-locked ones, in the batch, for later calls
  int training;

  // On one lane, for a row that was found. Returns what its key met at the first id to come, and kNothing at
  // others.
  HET_DEV Met Touch(const UseView& use, const Position& p, Slot* slot, uint64_t row,
                    uint64_t position) const {
    const uint64_t used = AtomicLoad(&slot->used);
    const bool invalid = (used & kInvalid) != 0;
    const bool trusted = (used & kSubscribed) != 0 && Trusts(use, p.key);
    const Pull pull = invalid ? Pull::kFetch : PullOf(use.check != 0, (used & kMoved) != 0, trusted);
    const bool look = pull == Pull::kCheck || pull == Pull::kFetch;
    const uint64_t place = invalid ? kNoPlace : PlaceOf(batch, use, row);
    static_cast<uint64_t*>(found)[position] = FoundWord(p.feature, place) | (look && !invalid ? kLeftOut : 0);
    // Most occurrences of a hot row find it visited and need no atomic. The first few compute the same new
    // word from the same old one, so any of them may be first.
    if (VisitOf(used) == batch.visit) return kNothing;
    const uint64_t next = Used(used, batch.visit, training != 0);
    if (VisitOf(AtomicExchange(&slot->used, next)) == batch.visit) return kNothing;
    if (training != 0) slot->stamp = use.stamp;
    if (look) AppendWanted(wanted, p.use, p.key, pull == Pull::kFetch ? HET_DEV_OLD_BASE : slot->base);
    return invalid ? kInvalidHere : (row & kOfCall) != 0 ? kInCall : kInTable;
  }

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t number) const {
    const Item<Batch> item(batch, number);
    typename Tile::template Lanes<uint32_t> met;
    tile.ForLanes([&](uint32_t lane) {
      met[lane] = kNothing;
      Position p;
      if (!item.Read(lane, &p)) return;
      static_cast<int64_t*>(ids)[item.PositionOf(lane)] = p.key;
      if (p.padding) {
        static_cast<uint64_t*>(found)[item.PositionOf(lane)] = FoundWord(item.number, kPaddingPlace);
        return;
      }
      met[lane] = kAbsent;
      const uint64_t row = FindInTable(item.use.table, p.key);
      if (row == kNowhere) return;
      met[lane] =
          Touch(item.use, p, static_cast<Slot*>(item.use.table.slots) + row, row, item.PositionOf(lane));
    });
    if (batch.call.n > 0) {
      tile.ForLanes([&](uint32_t lane) {
        Position p;
        if (met[lane] != kAbsent || !item.Read(lane, &p)) return;
        const uint64_t row = FindInCall(batch.call, p.use, p.key);
        if (row == kNowhere) return;
        met[lane] = Touch(item.use, p, static_cast<Slot*>(batch.call.slots) + (row & ~kOfCall), row,
                          item.PositionOf(lane));
      });
    }
    tile.ForLanes([&](uint32_t lane) {
      Position p;
      if (met[lane] != kAbsent || !item.Read(lane, &p)) return;
      static_cast<uint64_t*>(found)[item.PositionOf(lane)] = FoundWord(item.number, kNoPlace);
      if (!WantOnce(wanted, batch, item.PositionOf(lane), p, HET_DEV_NO_BASE)) met[lane] = kNothing;
    });
    uint32_t* words = wanted.n;
    uint32_t* counts =
        words + 2 + number % kStripes * StripeWords(batch.n_uses) + item.feature.use * kMetKinds;
    for (uint32_t kind = 0; kind < kMetKinds; ++kind) {
      const uint32_t n = tile.CountLanes([&](uint32_t lane) { return met[lane] == kind; });
      if (n > 0) tile.Once([&] { AtomicAdd(counts + kind, n); });
    }
    if (tile.LastOfAll(words + 1, static_cast<uint32_t>(batch.items))) Report(tile, words);
  }

  // Also clears the counts.
  template <typename Tile>
  HET_DEV void Report(const Tile& tile, uint32_t* words) const {
    uint32_t* to = report;
    tile.Once([&] { to[0] = AtomicExchange(words, 0u); });
    tile.ForEach(uint64_t{batch.n_uses} * kMetKinds, [&](uint64_t i) {
      uint32_t sum = 0;
      for (uint32_t stripe = 0; stripe < kStripes; ++stripe) {
        sum += AtomicExchange(words + 2 + stripe * StripeWords(batch.n_uses) + i, 0u);
      }
      to[1 + i] = sum;
    });
  }
};

// Writes the rows that a lookup has found and that need no check, and zeros for padding.
template <typename Batch>
struct RowsKernel {
  Batch batch;
  Dev<const uint64_t> found;

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t number) const {
    const Item<Batch> item(batch, number);
    typename Tile::template Lanes<uint32_t> rows;
    typename Tile::template Lanes<uint64_t> of_call;
    tile.ForLanes([&](uint32_t lane) {
      rows[lane] = kNoRow;
      of_call[lane] = kNowhere;
      if (item.first + lane >= item.feature.n) return;
      const uint64_t word = static_cast<const uint64_t*>(found)[item.PositionOf(lane)];
      const uint64_t place = PlaceIn(word);
      if (place == kPaddingPlace) {
        rows[lane] = kZeros;
      } else if (place != kNoPlace && (word & kLeftOut) == 0) {
        const uint64_t row = RowOf(batch, item.use, place);
        if ((row & kOfCall) == 0) {
          rows[lane] = static_cast<uint32_t>(row);
        } else {
          of_call[lane] = row;
        }
      }
    });
    item.Write(tile, rows);
    if (batch.call.n == 0) return;
    tile.ForLanes([&](uint32_t lane) {
      if (of_call[lane] != kNowhere) item.WriteOfCall(batch.call, of_call[lane], lane);
    });
  }
};

// Puts the trusted partitions into the uses. They are copied to the device only if some of a table are and
// some are not.
void SetTrust(Context& context, const HetDevBatch& batch, HostBatch* host) {
  for (uint32_t u = 0; u < batch.n_uses; ++u) {
    UseView& use = host->uses[u];
    const uint8_t* const trusted = batch.uses[u].trusted;
    if (trusted == nullptr) continue;
    const TableLayout& layout = use.table.layout;
    uint32_t n = 0;
    for (uint32_t i = 0; i < layout.group; ++i) n += trusted[layout.first + i * layout.stride] != 0 ? 1 : 0;
    use.trust = n == layout.group ? kTrustsAll : n > 0 ? kTrustsSome : kTrustsNone;
    if (use.trust != kTrustsSome) continue;
    use.trusted = Dev<const uint8_t>(context.Upload(trusted, layout.partitions()).raw());
  }
}

void Lookup(Context& context, HetDevCall& call, const HetDevBatch& batch, int training, HetDevStream stream,
            HetDevWanted* wanted) {
  *wanted = HetDevWanted{};
  call.read.Make();
  context.BeginProbe(stream, call.read);
  HostBatch host = CheckBatch(call, batch);
  host.sizes.visit = context.NextVisit();
  SetTrust(context, batch, &host);
  const BatchSizes sizes = host.sizes;
  host.SetIds(Dev<const int64_t>(CopyIds(context, batch, sizes.positions)));
  const KernelBatch kernel_batch(context, std::move(host));
  call.kept.Drop();
  call.has_ids = false;
  call.Reserve(context, sizes.positions);
  bool any_rows = false;
  for (uint32_t f = 0; f < batch.n_features; ++f) any_rows |= batch.features[f].rows != nullptr;
  const uint32_t counts = 1 + kStripes * StripeWords(batch.n_uses);
  const WantedView list = MakeWanted(context, sizes, context.Zeros(1 + counts));
  const size_t words = 1 + size_t{kMetKinds} * batch.n_uses;
  uint32_t* met = context.HostScratch<uint32_t>(words);
  std::fill_n(met, words, 0);  // without ids no kernel runs
  uint64_t* reads = context.HostScratch<uint64_t>(batch.n_uses);
  uint64_t* hits = context.HostScratch<uint64_t>(batch.n_uses);

  kernel_batch.With([&](const auto& view) {
    for (uint32_t use = 0; use < batch.n_uses; ++use) ClearOldVisits(context, batch.uses[use].table);
    ClearOldVisits(context, &call);
    Launch<32>(
        context, "lookup", sizes.items,
        LookupKernel<std::decay_t<decltype(view)>>{view, list, Dev<uint32_t>(met), call.found.as<uint64_t>(),
                                                   call.ids.as<int64_t>(), training});
    context.Follow(stream);
    if (any_rows) {
      Launch<32>(context, "rows of a lookup", sizes.items,
                 RowsKernel<std::decay_t<decltype(view)>>{view, call.found.as<const uint64_t>()});
    }
  });
  context.EndReads(&call.read, !kernel_batch.fits());
  call.positions = sizes.positions;
  call.looked_up = call.has_ids = true;
  context.Wait();
  ReadWanted(context, list, met[0], wanted);

  bool more_work = false;
  bool all_found = true;
  context.Switch(stream);
  for (uint32_t use = 0; use < batch.n_uses; ++use) {
    const uint32_t* sums = met + 1 + use * kMetKinds;
    const uint64_t in_table = uint64_t{sums[kInTable]} + sums[kInvalidHere];
    hits[use] = in_table + sums[kInCall];
    reads[use] = hits[use] + sums[kAbsent];
    all_found &= sums[kAbsent] + sums[kInvalidHere] == 0;
    if (training != 0) more_work |= CountFirstUses(context, batch.uses[use].table, in_table);
  }
  wanted->reads = reads;
  wanted->hits = hits;
  if (training != 0) call.kept.Keep(batch, all_found);
  if (more_work) context.End();
  context.Leave();
}

}  // namespace
}  // namespace het::dev

using namespace het::dev;  // NOLINT: the functions of the C ABI

int HetDevLookup(HetDevContext* context, HetDevCall* call, const HetDevBatch* batch, int training,
                 HetDevStream stream, HetDevWanted* wanted) {
  return Guard([&] { Lookup(*context, *call, *batch, training, stream, wanted); });
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
  call->looked_up = call->has_ids = false;
  call->kept.Drop();
  call->summed_at = 0;
}
