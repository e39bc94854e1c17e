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
//   sum      a tile a segment (tiles at other entries stop at once): up to 64 gradients, in order
//
//   chunks   longer segments: a tile for 64 gradients each, so that a hot id delays no other
//
//   long     the sums of their chunks, in order
//
// Occurrences need no atomic; a key needs one on a striped count (two more if it is due). The host reads
// counts and the list of wanted keys at the end; nothing else waits for it.
//
// Bytes for N ids of U unique keys with D floats: N (8 id + 64 probe + 20 place, order and address + 24 a
// pass of the sort + 4 D gradient) + U (4 D sum + 32 slot); HetDevTick adds U (4 D sum + 64 slot + 8 for each
// float of the row and its update). 4096 x 26 ids at D = 16 are at most 80 MB, 19 us at 4.3 TB/s. HetDevSum
// puts 8 kernels, fills and copies on the stream besides the 10 of the sort: such a step pays more for these
// than for its bytes (docs/gpu.md).
#include <string>
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
    HostBatch host = CheckBatch(call, batch, false);
    // Rows of the call are not kept: the table may have got the key since.
    kept_ = call.rows.n == 0 && call.kept.HoldsAll(batch);
    if (!kept_) host.sizes.visit = context.NextVisit();  // else no key is wanted
    view_ = Upload(context, host);
    n_ = view_.positions;
    while (bits_ < 64 && view_.places >> bits_ != 0) ++bits_;
    MakeCounts();
    SumView& sums = call.summed;
    sums = SumView();
    sums.positions = n_;
    sums.n_uses = view_.n_uses;
    for (uint32_t u = 0; u < view_.n_uses; ++u) {
      const uint32_t stride = StrideOf(batch.uses[u].table->view.dim);
      if (stride > sums.sum_stride) sums.sum_stride = stride;
    }
    sums.sorted = context.Scratch<uint64_t>(n_);
    sums.order = context.Scratch<uint32_t>(n_);
    sums.sums = context.Scratch<float>(n_ * sums.sum_stride);
    sums.due = context.Scratch<uint32_t>(n_);
    sums.due_keys = context.Scratch<uint64_t>(n_);
    sums.due_uses = context.Scratch<uint32_t>(n_);
    most_long_ = n_ / (kChunk + 1);
    most_chunks_ = n_ / kChunk + most_long_;
    s_.batch = view_;
    s_.addresses = context.Scratch<GradientAddress>(n_);
    s_.counts = counts_;
    s_.scale = scale;
    s_.aligned = 1;
    for (uint32_t f = 0; f < batch.n_features; ++f) {
      const void* gradients = runtime::ForeignAddress(batch.features[f].gradients);
      if (reinterpret_cast<uintptr_t>(gradients) % 16 != 0) s_.aligned = 0;
    }
    s_.due = sums.due;
    s_.due_keys = sums.due_keys;
    s_.due_uses = sums.due_uses;
    s_.bad_keys = context.Scratch<uint64_t>(n_);
    s_.bad_uses = context.Scratch<uint32_t>(n_);
    s_.long_entry = context.Scratch<uint32_t>(most_long_);
    s_.long_chunk = context.Scratch<uint32_t>(most_long_);
    s_.long_chunks = context.Scratch<uint32_t>(most_long_);
    s_.chunk_begin = context.Scratch<uint32_t>(most_chunks_);
    s_.chunk_end = context.Scratch<uint32_t>(most_chunks_);
    s_.partial_sums = context.Scratch<float>(most_chunks_ * sums.sum_stride);
  }

  void Run() {
    SumView& sums = call_.summed;
    if (active_ == nullptr) {
      Launch<32>(context_, "active features of HetDevSum", view_.items, ActiveKernel{view_, counts_});
    }
    if (!kept_) Launch<8>(context_, "probe of HetDevSum", n_, ProbeKernel{view_, sums.sorted});
    const Dev<const uint64_t> found(kept_ ? call_.found.as<const uint64_t>() : Dev<const uint64_t>());
    Launch<32>(context_, "keys of HetDevSum", (n_ + 31) / 32,
               KeysKernel{view_, wanted_, found, sums.sorted, sums.order, s_.addresses,
                          counts_.words.Plus(counts_.Active(0))});
    SortPairs(context_, &sums.sorted, &sums.order, n_, bits_);
    s_.segments = SegmentsOf(sums);
    if (sums.sum_stride <= 16) {
      RunWith<4>();
    } else {
      RunWith<8>();
    }
  }

  // Call after Run; waits for the stream.
  void Read(HetDevWanted* wanted, HetDevSummed* summed) {
    const size_t words = size_t{counts_.size()} + 1;
    uint32_t* n = context_.HostScratch<uint32_t>(words);
    context_.CopyOut(n, wanted_.n, words);
    context_.Wait();
    host_counts_ = n + 1;
    ReadWanted(context_, wanted_, *n, wanted);
    *summed = HetDevSummed{};
    uint8_t* active = context_.HostScratch<uint8_t>(batch_.n_features);
    for (uint32_t f = 0; f < batch_.n_features; ++f) active[f] = host_counts_[counts_.Active(f)] != 0;
    summed->active = active;
  }
  void ReadSums(HetDevSummed* summed) {
    uint64_t* ticks = context_.HostScratch<uint64_t>(batch_.n_uses);
    call_.summed.due_of_use.assign(batch_.n_uses, 0);
    for (uint32_t u = 0; u < batch_.n_uses; ++u) {
      ticks[u] = 0;
      for (uint32_t stripe = 0; stripe < kStripes; ++stripe) {
        ticks[u] += host_counts_[counts_.Ticks(stripe, u)];
        call_.summed.due_of_use[u] += host_counts_[counts_.DueOf(stripe, u)];
      }
      summed->uniques += ticks[u];
    }
    summed->ticks = ticks;
    summed->due = host_counts_[Counts::kDue];
    const uint32_t bad = host_counts_[Counts::kBad];
    if (bad == 0) return;
    uint64_t* keys = context_.HostScratch<uint64_t>(bad);
    uint32_t* uses = context_.HostScratch<uint32_t>(bad);
    context_.CopyOut(keys, s_.bad_keys, bad);
    context_.CopyOut(uses, s_.bad_uses, bad);
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
    const Dev<uint32_t> words = context_.Scratch<uint32_t>(size_t{counts_.size()} + 1);
    context_.Fill(words, 0, size_t{counts_.size()} + 1);
    wanted_ = MakeWanted(context_, view_, counts_.size(), words);
    counts_.words = words.Plus(1);
    if (active_ == nullptr) return;
    uint32_t* active = context_.HostScratch<uint32_t>(batch_.n_features);
    for (uint32_t f = 0; f < batch_.n_features; ++f) active[f] = active_[f] != 0;
    context_.CopyIn(counts_.words.Plus(counts_.Active(0)), active, batch_.n_features);
  }

  template <int kWidth>
  void RunWith() {
    Launch<kWidth>(context_, "sums of HetDevSum", n_, SumKernel{s_});
    Launch<kWidth>(context_, "chunks of HetDevSum", most_long_ > 0 ? most_chunks_ : 0, ChunkKernel{s_});
    Launch<kWidth>(context_, "long sums of HetDevSum", most_long_, LongKernel{s_});
  }

  Context& context_;
  HetDevCall& call_;
  const HetDevBatch& batch_;
  const uint8_t* active_;
  BatchView view_;
  WantedView wanted_;
  bool kept_ = false;
  uint64_t n_ = 0;
  Counts counts_ = {};
  const uint32_t* host_counts_ = nullptr;
  int bits_ = 1;
  uint64_t most_long_ = 0;
  uint64_t most_chunks_ = 0;
  Summing s_ = {};
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
