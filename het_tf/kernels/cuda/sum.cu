// HetDevSum: gradients to sums, one for each row.
//
//   sort     where the lookup has found rows (FoundWord), with positions: stable, so a row's stay in order
//
//   sum      a tile for 4 entries, which sums the pieces that begin there: segments of up to 64 entries, and
//            chunks of longer ones, so that a hot id delays no other; the last chunk adds the chunks
//
// If rows may have moved since the lookup, or there was none:
//
//   active   a tile for 32 positions: whether all gradients are zero so far
//
//   probe    a tile a position: its row's place, or that it is wanted
//
// The sums kernel takes all features for active, and finds those whose gradient is all zero. If there are any
// it runs again without these, since their rows get no tick: what was summed is the same, but a row is
// counted only if another feature has it.
//
// Occurrences need no atomic; a key needs three (two more if it is due). The last tile reports to the host,
// in page-locked memory; nothing else waits for it.
//
// Bytes for N ids of U unique keys with D floats: N (24 a pass of the sort + 12 place and order + 4 D
// gradient) + U (4 D sum + 32 slot); HetDevTick adds U (4 D sum + 64 slot + 8 for each float of the row and
// its update). 4096 x 26 ids at D = 16 are at most 77 MB, 18 us at 4.3 TB/s. HetDevSum puts one kernel on the
// stream besides the 10 operations of the sort (docs/gpu.md).
#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "het_tf/kernels/cuda/batch.h"
#include "het_tf/kernels/cuda/number.h"
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
    host_ = CheckBatch(call, batch);
    BringIds(context, &call, batch, &host_);
    // Rows of the call are not kept: the table may have got the key since.
    kept_ = call.rows.n == 0 && call.kept.HoldsAll(batch);
    if (!kept_) host_.sizes.visit = context.NextVisit();  // else no key is wanted
    n_ = host_.sizes.positions;
    // Its lowest bits tell padding from all places.
    while ((host_.sizes.places() + 1) >> bits_ != 0) ++bits_;
    if (active != nullptr) KeepActive(active);
    view_ = KernelBatch(context, host_);
    MakeCounts();
    SumView& sums = call.summed;
    sums = SumView();
    sums.positions = n_;
    sums.n_uses = batch.n_uses;
    sums.n_features = batch.n_features;
    for (uint32_t u = 0; u < batch.n_uses; ++u) {
      const uint32_t stride = StrideOf(batch.uses[u].table->view.dim);
      if (stride > sums.sum_stride) sums.sum_stride = stride;
    }
    if (!kept_) found_ = context.Scratch<uint64_t>(n_);
    sums.sums = context.Scratch<float>(n_ * sums.sum_stride);
    sums.due = context.Scratch<uint32_t>(n_);
    sums.due_keys = context.Scratch<uint64_t>(n_);
    sums.due_uses = context.Scratch<uint32_t>(n_);
    for (uint32_t f = 0; f < batch.n_features; ++f) {
      const void* gradients = runtime::ForeignAddress(batch.features[f].gradients);
      if (reinterpret_cast<uintptr_t>(gradients) % 16 != 0) aligned_ = 0;
    }
    bad_keys_ = context.Scratch<uint64_t>(n_);
    bad_uses_ = context.Scratch<uint32_t>(n_);
    report_ = context.HostScratch<uint32_t>(counts_.reported());
    std::fill_n(report_, counts_.reported(), 0);  // without ids no kernel runs
    scale_ = scale;
  }

  void Run() {
    if (!kept_) view_.With([&](const auto& view) { Find(view); });
    const Dev<const uint64_t> found = kept_ ? call_.found.as<const uint64_t>() : found_;
    const Sorted sorted = SortPairs(context_, found, Numbers(context_, n_), n_, bits_);
    call_.summed.sorted = sorted.keys;
    call_.summed.order = sorted.values;
    view_.With([&](const auto& view) { PutSums(view); });
  }

  // Call after Run; waits for the stream.
  void Read(HetDevWanted* wanted, HetDevSummed* summed) {
    context_.Wait();
    ReadWanted(context_, wanted_, report_[Counts::kWanted], wanted);
    *summed = HetDevSummed{};
    uint8_t* active = context_.HostScratch<uint8_t>(batch_.n_features);
    const uint32_t* flags = report_ + Counts::kReported + 2 * size_t{batch_.n_uses};
    bool all = true;
    for (uint32_t f = 0; f < batch_.n_features; ++f) {
      active[f] = (active_ == nullptr ? flags[f] : active_[f]) != 0;
      all = all && (active[f] != 0 || batch_.features[f].n == 0);
    }
    summed->active = active;
    if (active_ != nullptr || all || wanted->n > 0) return;
    KeepActive(active);
    view_ = KernelBatch(context_, host_);
    view_.With([&](const auto& view) { PutSums(view); });
    context_.Wait();
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
  // Other features have no gradients.
  void KeepActive(const uint8_t* active) {
    for (uint32_t f = 0; f < batch_.n_features; ++f) {
      if (active[f] != 0 || batch_.features[f].n == 0) continue;
      host_.features[f].gradients = Dev<const float>();
      all_active_ = 0;
    }
  }

  void MakeCounts() {
    counts_.n_uses = batch_.n_uses;
    counts_.n_features = batch_.n_features;
    counts_.positions = n_;
    counts_.words = context_.Zeros(counts_.size());
    if (!kept_) wanted_ = MakeWanted(context_, host_.sizes, counts_.words.Plus(Counts::kWanted));
  }

  template <typename Batch>
  void Find(const Batch& view) {
    Dev<const uint32_t> active;
    if (active_ == nullptr) {
      active = counts_.words.Plus(counts_.Active(0));
      Launch<32>(context_, "active features of HetDevSum", view.items, ActiveKernel<Batch>{view, counts_});
    }
    Launch<8>(context_, "probe of HetDevSum", n_, ProbeKernel<Batch>{view, wanted_, active, found_});
  }

  template <typename Batch>
  void PutSums(const Batch& view) {
    const SumView& sums = call_.summed;
    SumKernel<Batch> kernel = {};
    kernel.batch = view;
    kernel.segments = SegmentsOf(sums);
    kernel.counts = counts_;
    kernel.scale = scale_;
    kernel.aligned = aligned_;
    kernel.all_active = all_active_;
    kernel.tiles = static_cast<uint32_t>((n_ + kEntries - 1) / kEntries);
    kernel.due = sums.due;
    kernel.due_keys = sums.due_keys;
    kernel.due_uses = sums.due_uses;
    kernel.bad_keys = bad_keys_;
    kernel.bad_uses = bad_uses_;
    kernel.report = Dev<uint32_t>(report_);
    if (sums.sum_stride <= 16) {
      Launch<4>(context_, "sums of HetDevSum", kernel.tiles, kernel);
    } else {
      Launch<8>(context_, "sums of HetDevSum", kernel.tiles, kernel);
    }
  }

  Context& context_;
  HetDevCall& call_;
  const HetDevBatch& batch_;
  const uint8_t* active_;
  HostBatch host_;
  KernelBatch view_;
  WantedView wanted_;
  bool kept_ = false;
  uint64_t n_ = 0;
  Counts counts_ = {};
  uint32_t* report_ = nullptr;
  int bits_ = 1;
  float scale_ = 1;
  int aligned_ = 1;
  int all_active_ = 1;
  Dev<uint64_t> found_;
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
