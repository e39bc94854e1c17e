// HetDevSum: gradients to sums, one for each row.
//
//   active   a tile for 32 positions: whether all gradients are zero so far
//
//   probe    a tile a position: its row's place, or that it is wanted; not where the lookup's rows are kept
//
//   keys     a lane a position: places of inactive features and of padding go to the end
//
//   sort     (place, position), by the bits that places have: stable, so a row's positions stay in order
//
//   pieces   a lane an entry: segments of up to 64 entries, and chunks of longer ones: a hot id delays no
//   other
//
//   sum      a tile a piece; the last chunk of a segment adds the chunks, in order
//
// Occurrences need no atomic; a key needs three (two more if it is due). The last tile reports to the host,
// in page-locked memory; nothing else waits for it.
//
// Bytes for N ids of U unique keys with D floats: N (8 id + 64 probe + 20 place, order and address + 24 a
// pass of the sort + 4 D gradient) + U (4 D sum + 32 slot); HetDevTick adds U (4 D sum + 64 slot + 8 for each
// float of the row and its update). 4096 x 26 ids at D = 16 are at most 80 MB, 19 us at 4.3 TB/s. HetDevSum
// puts 4 kernels on the stream besides the 10 operations of the sort (docs/gpu.md).
#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "het_tf/kernels/cuda/batch.h"
#include "het_tf/kernels/cuda/sort.h"
#include "het_tf/kernels/cuda/sum_kernels.h"

namespace het::dev::sum {
namespace {

// Allocates all memory and holds the kernels' arguments.
class Sum {
 public:
  Sum(Context& context, HetDevCall& call, const HetDevBatch& batch, float scale, const uint8_t* active)
      : context_(context), call_(call), batch_(batch), active_(active) {
    for (uint32_t f = 0; f < batch.n_features; ++f) {
      const HetDevFeature& feature = batch.features[f];
      if (feature.n == 0 || feature.gradients != nullptr || (active != nullptr && active[f] == 0)) continue;
      Fail(HET_DEV_INVALID, "feature " + std::to_string(f) + " has no gradients");
    }
    HostBatch host = CheckBatch(call, batch);
    BringIds(context, &call, batch, &host);
    // Rows of the call are not kept: the table may have got the key since.
    kept_ = call.rows.n == 0 && call.kept.HoldsAll(batch);
    if (!kept_) host.sizes.visit = context.NextVisit();  // else no key is wanted
    view_ = KernelBatch(context, std::move(host));
    n_ = view_.sizes().positions;
    while (bits_ < 64 && view_.sizes().places >> bits_ != 0) ++bits_;
    MakeCounts();
    SumView& sums = call.summed;
    sums = SumView();
    sums.positions = n_;
    sums.n_uses = batch.n_uses;
    for (uint32_t u = 0; u < batch.n_uses; ++u) {
      const uint32_t stride = StrideOf(batch.uses[u].table->view.dim);
      if (stride > sums.sum_stride) sums.sum_stride = stride;
    }
    sums.sorted = context.Scratch<uint64_t>(n_);
    sums.order = context.Scratch<uint32_t>(n_);
    sums.sums = context.Scratch<float>(n_ * sums.sum_stride);
    sums.due = context.Scratch<uint32_t>(n_);
    sums.due_keys = context.Scratch<uint64_t>(n_);
    sums.due_uses = context.Scratch<uint32_t>(n_);
    const uint64_t most_long = n_ / (kChunk + 1);
    addresses_ = context.Scratch<GradientAddress>(n_);
    for (uint32_t f = 0; f < batch.n_features; ++f) {
      const void* gradients = runtime::ForeignAddress(batch.features[f].gradients);
      if (reinterpret_cast<uintptr_t>(gradients) % 16 != 0) aligned_ = 0;
    }
    bad_keys_ = context.Scratch<uint64_t>(n_);
    bad_uses_ = context.Scratch<uint32_t>(n_);
    pieces_ = context.Scratch<Piece>(n_);
    longs_ = context.Scratch<Long>(most_long);
    partial_sums_ = context.Scratch<float>((n_ / kChunk + most_long) * sums.sum_stride);
    report_ = context.HostScratch<uint32_t>(counts_.reported());
    std::fill_n(report_, counts_.reported(), 0);  // without ids no kernel runs
    scale_ = scale;
  }

  void Run() {
    view_.With([&](const auto& view) { PutKeys(view); });
    SumView& sums = call_.summed;
    SortPairs(context_, &sums.sorted, &sums.order, n_, bits_);
    Launch<32>(context_, "pieces of HetDevSum", (n_ + 31) / 32,
               PiecesKernel{SegmentsOf(sums), view_.sizes().places, counts_, pieces_, longs_});
    view_.With([&](const auto& view) { PutSums(view); });
  }

  // Call after Run; waits for the stream.
  void Read(HetDevWanted* wanted, HetDevSummed* summed) {
    context_.Wait();
    ReadWanted(context_, wanted_, report_[Counts::kWanted], wanted);
    *summed = HetDevSummed{};
    uint8_t* active = context_.HostScratch<uint8_t>(batch_.n_features);
    const uint32_t* flags = report_ + Counts::kReported + 2 * size_t{batch_.n_uses};
    for (uint32_t f = 0; f < batch_.n_features; ++f)
      active[f] = (active_ == nullptr ? flags[f] : active_[f]) != 0;
    summed->active = active;
  }
  void ReadSums(HetDevSummed* summed) {
    uint64_t* ticks = context_.HostScratch<uint64_t>(batch_.n_uses);
    const uint32_t* of_uses = report_ + Counts::kReported;
    call_.summed.due_of_use.assign(of_uses + batch_.n_uses, of_uses + 2 * size_t{batch_.n_uses});
    for (uint32_t u = 0; u < batch_.n_uses; ++u) {
      ticks[u] = of_uses[u];
      summed->uniques += ticks[u];
    }
    summed->ticks = ticks;
    summed->due = report_[Counts::kDue];
    summed->overdue = report_[Counts::kOverdue];
    const uint32_t bad = report_[Counts::kBad];
    if (bad == 0) return;
    uint64_t* keys = context_.HostScratch<uint64_t>(bad);
    uint32_t* uses = context_.HostScratch<uint32_t>(bad);
    context_.CopyOut(keys, bad_keys_, bad);
    context_.CopyOut(uses, bad_uses_, bad);
    context_.Wait();
    uint32_t first = 0;
    for (uint32_t i = 1; i < bad; ++i) {
      if (uses[i] < uses[first] || (uses[i] == uses[first] && keys[i] < keys[first])) first = i;
    }
    summed->non_finite = 1;
    summed->bad_use = uses[first];
    summed->bad_key = static_cast<int64_t>(keys[first]);
  }

 private:
  void MakeCounts() {
    counts_.n_uses = batch_.n_uses;
    counts_.n_features = batch_.n_features;
    counts_.words = context_.Zeros(counts_.size());
    wanted_ = MakeWanted(context_, view_.sizes(), counts_.size(), counts_.words.Plus(Counts::kWanted));
    if (active_ == nullptr || n_ == 0) return;
    uint32_t* active = context_.HostScratch<uint32_t>(batch_.n_features);
    for (uint32_t f = 0; f < batch_.n_features; ++f) active[f] = active_[f] != 0;
    context_.CopyIn(counts_.words.Plus(counts_.Active(0)), active, batch_.n_features);
  }

  // The places of positions.
  template <typename Batch>
  void PutKeys(const Batch& view) {
    SumView& sums = call_.summed;
    if (active_ == nullptr) {
      Launch<32>(context_, "active features of HetDevSum", view.items, ActiveKernel<Batch>{view, counts_});
    }
    if (!kept_) Launch<8>(context_, "probe of HetDevSum", n_, ProbeKernel<Batch>{view, sums.sorted});
    const Dev<const uint64_t> found(kept_ ? call_.found.as<const uint64_t>() : Dev<const uint64_t>());
    Launch<32>(context_, "keys of HetDevSum", (n_ + 31) / 32,
               KeysKernel<Batch>{view, wanted_, found, sums.sorted, sums.order, addresses_,
                                 counts_.words.Plus(counts_.Active(0))});
  }

  template <typename Batch>
  void PutSums(const Batch& view) {
    const SumView& sums = call_.summed;
    SumKernel<Batch> kernel = {};
    kernel.batch = view;
    kernel.segments = SegmentsOf(sums);
    kernel.addresses = addresses_;
    kernel.counts = counts_;
    kernel.scale = scale_;
    kernel.aligned = aligned_;
    kernel.pieces = pieces_;
    kernel.longs = longs_;
    kernel.partial_sums = partial_sums_;
    kernel.due = sums.due;
    kernel.due_keys = sums.due_keys;
    kernel.due_uses = sums.due_uses;
    kernel.bad_keys = bad_keys_;
    kernel.bad_uses = bad_uses_;
    kernel.report = Dev<uint32_t>(report_);
    if (sums.sum_stride <= 16) {
      Launch<4>(context_, "sums of HetDevSum", n_, kernel);
    } else {
      Launch<8>(context_, "sums of HetDevSum", n_, kernel);
    }
  }

  Context& context_;
  HetDevCall& call_;
  const HetDevBatch& batch_;
  const uint8_t* active_;
  KernelBatch view_;
  WantedView wanted_;
  bool kept_ = false;
  uint64_t n_ = 0;
  Counts counts_ = {};
  uint32_t* report_ = nullptr;
  int bits_ = 1;
  float scale_ = 1;
  int aligned_ = 1;
  Dev<GradientAddress> addresses_;
  Dev<Piece> pieces_;
  Dev<Long> longs_;
  Dev<float> partial_sums_;
  Dev<uint64_t> bad_keys_;
  Dev<uint32_t> bad_uses_;
};

}  // namespace
}  // namespace het::dev::sum

using namespace het::dev;  // NOLINT: the functions of the C ABI

int HetDevSum(HetDevContext* context, HetDevCall* call, const HetDevBatch* batch, float scale,
              const uint8_t* active, HetDevStream stream, HetDevWanted* wanted, HetDevSummed* summed) {
  return Guard([&] {
    *wanted = HetDevWanted{};
    *summed = HetDevSummed{};
    call->summed_at = 0;
    context->Begin(stream);
    sum::Sum work(*context, *call, *batch, scale, active);
    work.Run();
    work.Read(wanted, summed);
    if (wanted->n > 0) return;
    work.ReadSums(summed);
    if (summed->non_finite == 0) call->summed_at = context->calls();
  });
}
