// HetDevSum: gradients to sums, one for each row.
//
//   probe    a tile a position: its row's place, or that it is wanted; is the feature's gradient zero so far?
//   keys     a lane a position: places of inactive features and of padding go to the end
//   sort     of (place, position), by the bits that places have: stable, so a row's positions stay in order
//   sum      a tile a segment (tiles at other entries stop at once): up to 64 gradients, added in order,
//   times scale chunks   of longer segments: a tile for 64 gradients each, so that a hot id keeps nobody
//   waiting long     their partial sums, added in order
//
// Nothing but the count of a use's keys is added up atomically, and that in stripes. Nothing of it waits for
// the host, which reads counts and the list of wanted keys at the end.
//
// Bytes for N ids of U different keys with D floats: N (8 id + 64 probe + 20 place, order, address + 24 a
// pass of the sort + 4 D gradient) + U (4 D sum + 32 slot); HetDevTick adds U (4 D + 64 + 8 x the row's and
// update's floats). 4096 x 26 ids at D = 16 take about 10 launches beside the sort's, most of them of a few
// microseconds or less: launches and not bytes (some 25 MB, 6 us at 4.3 TB/s) are what such a step costs.
// Neither has been measured on a GPU.
#include <cmath>
#include <string>

#include "het_tf/kernels/cuda/batch.h"
#include "het_tf/kernels/cuda/pack.h"
#include "het_tf/kernels/cuda/probe.h"
#include "het_tf/kernels/cuda/sort.h"
#include "het_tf/kernels/cuda/sum_view.h"
#include "het_tf/kernels/cuda/tile.h"
#include "het_tf/kernels/cuda/wanted.h"

namespace het::dev {
namespace {

constexpr uint64_t kChunk = 64;    // positions that are summed in one go (device_cache.h)
constexpr uint32_t kStripes = 16;  // of counts that the whole device adds to

using GradientAddress = Dev<const float>;

// Counts on the device, in one array that is zeroed and copied at once.
struct Counts {
  Dev<uint32_t> words;
  uint32_t n_uses;
  uint32_t n_features;
  static constexpr uint32_t kDue = 0, kBad = 1, kChunks = 2, kLong = 3, kFixed = 4;

  HET_HOST_DEVICE uint32_t Ticks(uint32_t stripe, uint32_t use) const {
    return kFixed + stripe * n_uses + use;
  }
  HET_HOST_DEVICE uint32_t DueOf(uint32_t stripe, uint32_t use) const {
    return kFixed + (kStripes + stripe) * n_uses + use;
  }
  HET_HOST_DEVICE uint32_t Active(uint32_t feature) const { return kFixed + 2 * kStripes * n_uses + feature; }
  HET_HOST_DEVICE uint32_t size() const { return Active(n_features); }
};

struct ProbeKernel {
  BatchView batch;
  Dev<const uint64_t> places;
  Dev<uint64_t> keys;
  Counts counts;
  int find_active;

  template <typename Tile>
  HET_DEV void FindActive(const Tile& tile, const Position& p, uint32_t dim) const {
    uint32_t* active = static_cast<uint32_t*>(counts.words) + counts.Active(p.feature);
    if (tile.One([&] { return AtomicLoad(active); }) != 0) return;
    const float* gradient =
        static_cast<const float*>(static_cast<const FeatureView*>(batch.features)[p.feature].gradients) +
        p.at * dim;
    if (tile.Any(dim, [&](uint64_t i) { return !(gradient[i] == 0.0f); })) {
      tile.Once([&] { AtomicStore(active, 1u); });
    }
  }

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t position) const {
    const Position p = PositionAt(batch, position);
    const TableView& table = static_cast<const UseView*>(batch.uses)[p.use].table;
    const uint64_t* place_of_use = places;
    if (find_active != 0) FindActive(tile, p, table.dim);
    uint64_t place = place_of_use[batch.n_uses];
    if (!p.padding) {
      const uint64_t row = Find(tile, batch, p.use, p.key);
      if (row == kNowhere || (RowAt(batch, p.use, row).slot->flags & Slot::kInvalid) != 0) {
        place = kNowhere;
      } else if ((row & kOfCall) != 0) {
        place = place_of_use[p.use] + table.buckets * kBucketSlots + (row & ~kOfCall);
      } else {
        place = place_of_use[p.use] + row;
      }
    }
    tile.Once([&] { static_cast<uint64_t*>(keys)[position] = place; });
  }
};

struct KeysKernel {
  BatchView batch;
  WantedView wanted;
  Dev<const uint64_t> places;
  Dev<uint64_t> keys;
  Dev<uint32_t> order;
  Dev<GradientAddress> addresses;
  Dev<uint32_t> active;  // of features

  HET_DEV void Do(uint64_t position) const {
    const Position p = PositionAt(batch, position);
    const FeatureView& feature = static_cast<const FeatureView*>(batch.features)[p.feature];
    const uint64_t none = static_cast<const uint64_t*>(places)[batch.n_uses];
    const uint32_t dim = static_cast<const UseView*>(batch.uses)[p.use].table.dim;
    uint64_t* key = static_cast<uint64_t*>(keys) + position;
    if (static_cast<uint32_t*>(active)[p.feature] == 0) {
      *key = none;
    } else if (*key == kNowhere) {
      WantOnce(wanted, batch, position, p, HET_DEV_NO_BASE);
      *key = none;
    }
    static_cast<uint32_t*>(order)[position] = static_cast<uint32_t>(position);
    static_cast<GradientAddress*>(addresses)[position] = feature.gradients.Plus(p.at * dim);
  }

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t item) const {
    tile.ForEach(32, [&](uint64_t i) {
      if (item * 32 + i < batch.positions) Do(item * 32 + i);
    });
  }
};

// What is done with segments, by the three kernels that sum.
struct Summing {
  BatchView batch;
  Segments segments;
  Dev<GradientAddress> addresses;
  Counts counts;
  float scale;
  Dev<uint32_t> due;
  Dev<uint64_t> due_keys;
  Dev<uint32_t> due_uses;
  Dev<uint64_t> bad_keys;
  Dev<uint32_t> bad_uses;
  // Of segments of more than kChunk entries: their first entry, chunk and how many; of chunks their entries.
  Dev<uint32_t> long_entry, long_chunk, long_chunks;
  Dev<uint32_t> chunk_begin, chunk_end;
  Dev<float> partial_sums;

  // to[0, dim) = gradients of the entries [begin, end), added in order, times `by`.
  template <int V, typename Tile>
  HET_DEV void AddGradients(const Tile& tile, uint64_t begin, uint64_t end, uint32_t dim, float by,
                            float* to) const {
    const uint32_t* order = segments.order;
    const GradientAddress* address = addresses;
    ForPacks<V>(tile, dim, [&](uint64_t i) {
      Pack<V> sum = LoadOrZero<V>(nullptr, 0);
      for (uint64_t e = begin; e < end; ++e) {
        const float* from = address[order[e]];
        const Pack<V> gradient = Load<V>(from + i);
        for (int k = 0; k < V; ++k) sum.at[k] += gradient.at[k];
      }
      for (int k = 0; k < V; ++k) sum.at[k] *= by;
      Store<V>(to + i, sum);
    });
  }
  template <typename Tile>
  HET_DEV void AddGradients(const Tile& tile, uint64_t begin, uint64_t end, uint32_t dim, float by,
                            float* to) const {
    const uint32_t* order = segments.order;
    const GradientAddress* address = addresses;
    // With dim a multiple of 4, gradients of a feature are all aligned if one is; features may differ.
    bool packs = dim % 4 == 0;
    if (packs) {
      packs = !tile.Any(end - begin, [&](uint64_t i) {
        const float* from = address[order[begin + i]];
        return (reinterpret_cast<uint64_t>(from) & 15) != 0;
      });
    }
    if (packs) {
      AddGradients<4>(tile, begin, end, dim, by, to);
    } else {
      AddGradients<1>(tile, begin, end, dim, by, to);
    }
  }

  HET_DEV float* SumAt(uint64_t entry) const {
    return static_cast<float*>(segments.sums) + entry * segments.sum_stride;
  }

  // The sum of the segment that begins at `entry` is there. Counts it.
  template <typename Tile>
  HET_DEV void Finish(const Tile& tile, uint64_t entry, const Place& place) const {
    const UseView& use = static_cast<const UseView*>(batch.uses)[place.use];
    const float* sum = SumAt(entry);
    tile.Sync();
    // x * 0 is not 0 for NaN and Inf alone.
    const bool bad = tile.Any(use.table.dim, [&](uint64_t i) { return !(sum[i] * 0.0f == 0.0f); });
    tile.Once([&] {
      const Slot& slot = *RowAt(batch, place.use, place.row).slot;
      uint32_t* words = counts.words;
      const uint32_t stripe = static_cast<uint32_t>(entry / 8 % kStripes);
      AtomicAdd(words + counts.Ticks(stripe, place.use), 1u);
      if (WillLeave(use, place, slot.ticks)) {
        const uint32_t at = Tile::Append(words + Counts::kDue);
        static_cast<uint32_t*>(due)[at] = static_cast<uint32_t>(entry);
        static_cast<uint64_t*>(due_keys)[at] = static_cast<uint64_t>(slot.key);
        static_cast<uint32_t*>(due_uses)[at] = place.use;
        AtomicAdd(words + counts.DueOf(stripe, place.use), 1u);
      }
      if (bad) {
        const uint32_t at = Tile::Append(words + Counts::kBad);
        static_cast<uint64_t*>(bad_keys)[at] = static_cast<uint64_t>(slot.key);
        static_cast<uint32_t*>(bad_uses)[at] = place.use;
      }
    });
  }
};

// The first entry from `entry` on of another place than that of `entry`.
HET_DEV uint64_t EndOfSegment(const Segments& segments, uint64_t entry) {
  const uint64_t* sorted = segments.sorted;
  uint64_t in = entry, out = segments.positions;
  while (out - in > 1) {
    const uint64_t middle = (in + out) / 2;
    if (sorted[middle] == sorted[entry]) {
      in = middle;
    } else {
      out = middle;
    }
  }
  return out;
}

struct SumKernel {
  Summing s;

  template <typename Tile>
  HET_DEV void Postpone(const Tile& tile, uint64_t entry) const {
    const uint64_t end = EndOfSegment(s.segments, entry);
    const uint32_t chunks = static_cast<uint32_t>((end - entry + kChunk - 1) / kChunk);
    uint32_t* words = s.counts.words;
    const uint32_t first = tile.One([&] {
      const uint32_t chunk = AtomicAdd(words + Counts::kChunks, chunks);
      const uint32_t at = AtomicAdd(words + Counts::kLong, 1u);
      static_cast<uint32_t*>(s.long_entry)[at] = static_cast<uint32_t>(entry);
      static_cast<uint32_t*>(s.long_chunk)[at] = chunk;
      static_cast<uint32_t*>(s.long_chunks)[at] = chunks;
      return chunk;
    });
    tile.ForEach(chunks, [&](uint64_t c) {
      const uint64_t begin = entry + c * kChunk;
      static_cast<uint32_t*>(s.chunk_begin)[first + c] = static_cast<uint32_t>(begin);
      static_cast<uint32_t*>(s.chunk_end)[first + c] =
          static_cast<uint32_t>(end - begin < kChunk ? end : begin + kChunk);
    });
  }

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t entry) const {
    if (!BeginsSegment(s.segments, entry)) return;
    const uint64_t* sorted = s.segments.sorted;
    const uint64_t place = sorted[entry];
    if (entry + kChunk < s.segments.positions && sorted[entry + kChunk] == place) {
      Postpone(tile, entry);
      return;
    }
    uint64_t end = entry + 1;
    while (end < s.segments.positions && sorted[end] == place) ++end;
    const Place at = PlaceAt(s.segments, s.batch, entry);
    s.AddGradients(tile, entry, end, static_cast<const UseView*>(s.batch.uses)[at.use].table.dim, s.scale,
                   s.SumAt(entry));
    s.Finish(tile, entry, at);
  }
};

struct ChunkKernel {
  Summing s;

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t chunk) const {
    if (chunk >= static_cast<uint32_t*>(s.counts.words)[Counts::kChunks]) return;
    const uint32_t begin = static_cast<uint32_t*>(s.chunk_begin)[chunk];
    const Place at = PlaceAt(s.segments, s.batch, begin);
    s.AddGradients(tile, begin, static_cast<uint32_t*>(s.chunk_end)[chunk],
                   static_cast<const UseView*>(s.batch.uses)[at.use].table.dim, 1.0f,
                   static_cast<float*>(s.partial_sums) + chunk * s.segments.sum_stride);
  }
};

struct LongKernel {
  Summing s;

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t i) const {
    if (i >= static_cast<uint32_t*>(s.counts.words)[Counts::kLong]) return;
    const uint32_t entry = static_cast<uint32_t*>(s.long_entry)[i];
    const uint64_t chunks = static_cast<uint32_t*>(s.long_chunks)[i];
    const uint64_t stride = s.segments.sum_stride;
    const float* partial =
        static_cast<float*>(s.partial_sums) + static_cast<uint32_t*>(s.long_chunk)[i] * stride;
    const Place at = PlaceAt(s.segments, s.batch, entry);
    float* to = s.SumAt(entry);
    tile.ForEach(static_cast<const UseView*>(s.batch.uses)[at.use].table.dim, [&](uint64_t d) {
      float sum = 0.0f;
      for (uint64_t c = 0; c < chunks; ++c) sum += partial[c * stride + d];
      to[d] = sum * s.scale;
    });
    s.Finish(tile, entry, at);
  }
};

// Memory for everything, the kernels' arguments.
class Sum {
 public:
  Sum(Context& context, HetDevCall& call, const HetDevBatch& batch, float scale, const uint8_t* active)
      : context_(context), call_(call), batch_(batch), active_(active) {
    for (uint32_t f = 0; f < batch.n_features; ++f) {
      const HetDevFeature& feature = batch.features[f];
      if (feature.n == 0 || feature.gradients != nullptr || (active != nullptr && active[f] == 0)) continue;
      Fail(HET_DEV_INVALID, "feature " + std::to_string(f) + " has no gradients");
    }
    view_ = MakeBatch(context, call, batch, false);
    n_ = view_.positions;
    wanted_ = MakeWanted(context, view_);
    MakeCounts();
    MakePlaces();
    SumView& sums = call.summed;
    sums = SumView();
    sums.places = places_;
    sums.positions = n_;
    sums.n_uses = view_.n_uses;
    for (uint32_t u = 0; u < view_.n_uses; ++u) {
      const uint32_t stride = StrideOf4(batch.uses[u].table->view.dim);
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
    Launch<8>(context_, "probe of HetDevSum", n_,
              ProbeKernel{view_, places_, sums.sorted, counts_, active_ == nullptr});
    Launch<32>(context_, "keys of HetDevSum", (n_ + 31) / 32,
               KeysKernel{view_, wanted_, places_, sums.sorted, sums.order, s_.addresses,
                          counts_.words.Plus(counts_.Active(0))});
    SortPairs(context_, &sums.sorted, &sums.order, n_, bits_);
    s_.segments = SegmentsOf(sums);
    if (sums.sum_stride <= 16) {
      RunWith<4>();
    } else {
      RunWith<8>();
    }
    context_.CopyOut(host_counts_, counts_.words, counts_.size());
  }

  // After Run, with the stream waited for.
  void Read(HetDevSummed* summed) {
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
  const WantedView& wanted() const { return wanted_; }

 private:
  static uint32_t StrideOf4(uint32_t floats) { return (floats + 3) / 4 * 4; }

  void MakeCounts() {
    counts_.n_uses = batch_.n_uses;
    counts_.n_features = batch_.n_features;
    host_counts_ = context_.HostScratch<uint32_t>(counts_.size());
    if (active_ == nullptr) {
      counts_.words = context_.Scratch<uint32_t>(counts_.size());
      context_.Fill(counts_.words, 0, counts_.size());
    } else {
      std::vector<uint32_t> words(counts_.size());
      for (uint32_t f = 0; f < batch_.n_features; ++f) words[counts_.Active(f)] = active_[f] != 0;
      counts_.words = context_.Upload(words.data(), words.size());
    }
  }

  void MakePlaces() {
    std::vector<uint64_t> places(1, 0);
    for (uint32_t u = 0; u < batch_.n_uses; ++u) {
      places.push_back(places.back() + batch_.uses[u].table->capacity + view_.call.n);
    }
    while (bits_ < 64 && places.back() >> bits_ != 0) ++bits_;
    places_ = Dev<const uint64_t>(context_.Upload(places.data(), places.size()).raw());
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
  uint64_t n_ = 0;
  Counts counts_ = {};
  uint32_t* host_counts_ = nullptr;
  Dev<const uint64_t> places_;
  int bits_ = 1;
  uint64_t most_long_ = 0;
  uint64_t most_chunks_ = 0;
  Summing s_ = {};
};

}  // namespace
}  // namespace het::dev

using namespace het::dev;  // NOLINT: the functions of the C ABI

int HetDevSum(HetDevContext* context, HetDevCall* call, const HetDevBatch* batch, float scale,
              const uint8_t* active, HetDevStream stream, HetDevWanted* wanted, HetDevSummed* summed) {
  return Guard([&] {
    *wanted = HetDevWanted{};
    *summed = HetDevSummed{};
    call->summed_at = 0;
    context->Begin(stream);
    Sum sum(*context, *call, *batch, scale, active);
    sum.Run();
    ReadWanted(*context, sum.wanted(), wanted);
    sum.Read(summed);
    if (wanted->n > 0) return;
    sum.ReadSums(summed);
    if (summed->non_finite == 0) call->summed_at = context->calls();
  });
}
