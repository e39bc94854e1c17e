// Device functions: the kernels of HetDevSum (sum.cu).
#pragma once

#include "het_tf/kernels/cuda/pack.h"
#include "het_tf/kernels/cuda/probe.h"
#include "het_tf/kernels/cuda/sum_view.h"
#include "het_tf/kernels/cuda/tile.h"
#include "het_tf/kernels/cuda/wanted.h"

namespace het::dev::sum {

constexpr uint32_t kChunk = 64;    // entries that are summed together (abi.h)
constexpr uint32_t kEntries = 4;   // of a tile: a sector of memory
constexpr uint32_t kStripes = 16;  // stripes of device-wide counts, in lines of 128 bytes each

constexpr int kAtOnce = 4;  // concurrent loads of one lane

// Counts on the device, in one array that is 0 between calls.
struct Counts {
  Dev<uint32_t> words;
  uint32_t n_uses;
  uint32_t n_features;
  uint64_t positions;
  static constexpr uint32_t kWanted = 0, kDue = 1, kBad = 2, kOverdue = 3, kReported = 4;
  static constexpr uint32_t kDone = 4, kFixed = 8;

  HET_HOST_DEVICE uint32_t Ticks(uint32_t stripe, uint32_t use) const {
    return kFixed + stripe * StripeWords() + use;
  }
  HET_HOST_DEVICE uint32_t DueOf(uint32_t stripe, uint32_t use) const {
    return kFixed + stripe * StripeWords() + n_uses + use;
  }
  HET_HOST_DEVICE uint32_t Active(uint32_t feature) const {
    return kFixed + kStripes * StripeWords() + feature;
  }
  // Of the segment that begins there and has more than kChunk entries: chunks that are done, and 1 if one has
  // an active feature. Such segments begin at least kChunk + 1 entries apart.
  HET_HOST_DEVICE uint32_t Long(uint64_t begin) const {
    return Active(n_features) + 2 * static_cast<uint32_t>(begin / (kChunk + 1));
  }
  HET_HOST_DEVICE uint32_t StripeWords() const { return (2 * n_uses + 31) / 32 * 32; }
  // Words of the report for the host: kReported; ticks of the uses; due rows of the uses; active features.
  HET_HOST_DEVICE uint32_t reported() const { return kReported + 2 * n_uses + n_features; }
  HET_HOST_DEVICE uint32_t size() const { return Long(positions); }
};

// Finds features whose gradient is not all zero. Not needed where the lookup's rows are kept.
template <typename Batch>
struct ActiveKernel {
  Batch batch;
  Counts counts;

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t item) const {
    const uint32_t number = FeatureOfItem(batch, item);
    const FeatureView& feature = batch.feature(number);
    uint32_t* active = static_cast<uint32_t*>(counts.words) + counts.Active(number);
    // A stale 0 only costs reading these gradients, and then a store, which neighbours see.
    if (tile.One([&] { return OldLoad(active); }) != 0) return;
    const uint64_t first = (item - feature.first_item) * kItem;
    const uint64_t ids = feature.n - first < kItem ? feature.n - first : kItem;
    const uint32_t dim = batch.use(feature.use).table.dim;
    const float* gradients = static_cast<const float*>(feature.gradients) + first * dim;
    if (tile.Any(ids * dim, [&](uint64_t i) { return !(gradients[i] == 0.0f); })) {
      tile.Once([&] { AtomicStore(active, 1u); });
    }
  }
};

// Finds each id's row again, and lists those that are wanted. Not needed where the lookup's rows are kept.
template <typename Batch>
struct ProbeKernel {
  Batch batch;
  WantedView wanted;
  Dev<const uint32_t> active;  // for each feature; null: those with gradients are
  Dev<uint64_t> found;

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t position) const {
    const Position p = PositionAt(batch, position);
    uint64_t place = kPaddingPlace;
    if (!p.padding) {
      const uint64_t row = Find(tile, batch, p.use, p.key);
      const bool here = row != kNowhere && (RowAt(batch, p.use, row).slot->used & kInvalid) == 0;
      place = here ? PlaceOf(batch, batch.use(p.use), row) : kNoPlace;
    }
    tile.Once([&] {
      static_cast<uint64_t*>(found)[position] = FoundWord(p.feature, place);
      const bool counts = !batch.feature(p.feature).gradients.null() &&
                          (active.null() || static_cast<const uint32_t*>(active)[p.feature] != 0);
      if (place == kNoPlace && counts) WantOnce(wanted, batch, position, p, HET_DEV_NO_BASE);
    });
  }
};

// Returns the first entry of the segment that this one is in.
HET_DEV uint32_t BeginOfSegment(const Segments& segments, uint32_t entry) {
  const uint64_t place = segments.PlaceAt(entry);
  uint32_t low = 0, high = entry;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (segments.PlaceAt(middle) == place) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}
// Returns the first entry behind it.
HET_DEV uint32_t EndOfSegment(const Segments& segments, uint32_t entry) {
  const uint64_t place = segments.PlaceAt(entry);
  uint32_t in = entry, out = segments.positions;
  while (out - in > 1) {
    const uint32_t middle = in + (out - in) / 2;
    if (segments.PlaceAt(middle) == place) {
      in = middle;
    } else {
      out = middle;
    }
  }
  return out;
}

// Sums the *pieces* that begin among a tile's entries: segments of up to kChunk entries, and chunks of longer
// ones. Who sums the last chunk of a segment adds its chunks in order; who is the last of all reports.
//
// A segment gets a tick if one of its ids is of an active feature: one that has gradients here. Which
// features have gradients that are not all zero is known when all of them have been read.
template <typename Batch>
struct SumKernel {
  Batch batch;
  Segments segments;
  Counts counts;
  float scale;
  int aligned;     // all features' gradients are aligned to 16 bytes
  int all_active;  // all features with ids have gradients
  uint32_t tiles;
  Dev<uint32_t> due;
  Dev<uint64_t> due_keys;
  Dev<uint32_t> due_uses;
  Dev<uint64_t> bad_keys;
  Dev<uint32_t> bad_uses;
  Dev<uint32_t> report;  // page-locked

  HET_DEV uint32_t* WordOf(uint32_t at) const { return static_cast<uint32_t*>(counts.words) + at; }

  // On one lane, for a gradient of the feature that is not zero. A stale 0 costs a store.
  HET_DEV void MarkActive(uint32_t feature) const {
    uint32_t* active = WordOf(counts.Active(feature));
    if (OldLoad(active) == 0) AtomicStore(active, 1u);
  }

  // An id's gradient; null: its feature has none.
  HET_DEV const float* GradientOf(uint32_t feature, uint32_t position, uint32_t dim) const {
    const FeatureView& of = batch.feature(feature);
    if (of.gradients.null()) return nullptr;
    return static_cast<const float*>(of.gradients) + (position - of.begin) * dim;
  }

  // The sum at `begin` = the gradients of this entry and those that follow it in its segment, up to kChunk,
  // added in order, times `by`.
  template <int V, typename Tile>
  HET_DEV void AddGradients(const Tile& tile, uint32_t begin, uint64_t place, uint32_t dim, float by) const {
    const uint64_t* sorted = static_cast<const uint64_t*>(segments.sorted) + begin;
    const uint32_t* order = static_cast<uint32_t*>(segments.order) + begin;
    const uint32_t most = segments.positions - begin < kChunk ? segments.positions - begin : kChunk;
    ForPacks<V>(tile, dim, [&](uint64_t i) {
      Pack<V> sum = LoadOrZero<V>(nullptr, 0);
      uint32_t marked = kEmpty;
      // Several loads are in flight at a time. Adding zeros past the end changes no sum, since no sum is -0.
      bool more = true;
      for (uint32_t e = 0; more; e += kAtOnce) {
        Pack<V> gradient[kAtOnce];
        uint32_t feature[kAtOnce];
        for (int j = 0; j < kAtOnce; ++j) {
          const uint64_t word = e + j < most ? sorted[e + j] : kNoPlace;
          feature[j] = FeatureIn(word);
          more = PlaceIn(word) == place;  // only then: who sums another segment may mark it in `order`
          gradient[j] = LoadOrZero<V>(more ? GradientOf(feature[j], order[e + j], dim) : nullptr, i);
        }
        for (int j = 0; j < kAtOnce; ++j) {
          bool zero = true;
          for (int k = 0; k < V; ++k) {
            sum.at[k] += gradient[j].at[k];
            zero = zero && gradient[j].at[k] == 0.0f;
          }
          if (zero || feature[j] == marked) continue;
          marked = feature[j];
          MarkActive(marked);
        }
      }
      for (int k = 0; k < V; ++k) sum.at[k] *= by;
      Store<V>(segments.SumAt(begin) + i, sum);
    });
  }

  // Whether these entries have an active feature.
  template <typename Tile>
  HET_DEV bool AnyActive(const Tile& tile, uint32_t begin, uint64_t place) const {
    if (all_active != 0) return true;
    return tile.Any(kChunk, [&](uint64_t i) {
      return segments.PlaceAt(begin + i) == place &&
             !batch.feature(FeatureIn(static_cast<const uint64_t*>(segments.sorted)[begin + i]))
                  .gradients.null();
    });
  }

  // Call when the sum of the segment at `entry` is complete. Counts it.
  template <typename Tile>
  HET_DEV void Finish(const Tile& tile, uint32_t entry, bool active) const {
    if (!active) {
      tile.Sync();  // all lanes have read it
      tile.Once([&] { static_cast<uint32_t*>(segments.order)[entry] = kEmpty; });
      return;
    }
    const RowOfSegment row = RowOfEntry(segments, batch, entry);
    const UseView& use = batch.use(row.use);
    const float* sum = segments.SumAt(entry);
    tile.Sync();
    // x * 0 is not 0 only for NaN and Inf.
    const bool bad = tile.Any(use.table.dim, [&](uint64_t i) { return !(sum[i] * 0.0f == 0.0f); });
    tile.Once([&] {
      const Slot& slot = *RowAt(batch, row.use, row.row).slot;
      uint32_t* words = counts.words;
      const uint32_t stripe = entry / 8 % kStripes;
      AtomicAdd(words + counts.Ticks(stripe, row.use), 1u);
      if (WillLeave(use, row, slot)) {
        const uint32_t at = Tile::Append(words + Counts::kDue);
        static_cast<uint32_t*>(due)[at] = entry;
        static_cast<uint64_t*>(due_keys)[at] = static_cast<uint64_t>(slot.key);
        static_cast<uint32_t*>(due_uses)[at] = row.use;
        AtomicAdd(words + counts.DueOf(stripe, row.use), 1u);
        if (IsOverdue(use, row, slot)) AtomicAdd(words + Counts::kOverdue, 1u);
      }
      if (bad) {
        const uint32_t at = Tile::Append(words + Counts::kBad);
        static_cast<uint64_t*>(bad_keys)[at] = static_cast<uint64_t>(slot.key);
        static_cast<uint32_t*>(bad_uses)[at] = row.use;
      }
    });
  }

  // The sum of a segment = those of its chunks, which lie at their first entries, added in order, times
  // scale.
  template <int V, typename Tile>
  HET_DEV void AddChunks(const Tile& tile, uint32_t begin, uint32_t chunks, uint32_t dim) const {
    const uint64_t stride = uint64_t{kChunk} * segments.sum_stride;
    float* partial = segments.SumAt(begin);
    ForPacks<V>(tile, dim, [&](uint64_t i) {
      Pack<V> sum = LoadOrZero<V>(nullptr, 0);
      for (uint32_t c = 0; c < chunks; c += 2 * kAtOnce) {
        Pack<V> some[2 * kAtOnce];
        for (int j = 0; j < 2 * kAtOnce; ++j) {
          some[j] = c + j < chunks ? LoadFresh<V>(partial + (c + j) * stride + i) : LoadOrZero<V>(nullptr, 0);
        }
        for (int j = 0; j < 2 * kAtOnce; ++j) {
          for (int k = 0; k < V; ++k) sum.at[k] += some[j].at[k];
        }
      }
      for (int k = 0; k < V; ++k) sum.at[k] *= scale;
      Store<V>(partial + i, sum);
    });
  }

  // The piece at `entry`, of the segment that begins at `begin`.
  template <typename Tile>
  HET_DEV void Piece(const Tile& tile, uint32_t begin, uint32_t entry, uint64_t place) const {
    const uint32_t dim = batch.use(RowOfEntry(segments, batch, entry).use).table.dim;
    const bool whole = begin == entry && segments.PlaceAt(uint64_t{entry} + kChunk) != place;
    const float by = whole ? scale : 1.0f;
    if (aligned != 0 && dim % 4 == 0) {
      AddGradients<4>(tile, entry, place, dim, by);
    } else {
      AddGradients<1>(tile, entry, place, dim, by);
    }
    bool active = AnyActive(tile, entry, place);
    if (!whole) {
      const uint32_t chunks = (EndOfSegment(segments, entry) - begin + kChunk - 1) / kChunk;
      uint32_t* of_long = WordOf(counts.Long(begin));
      if (active) tile.Once([&] { AtomicStore(of_long + 1, 1u); });
      if (!tile.Last(of_long, chunks)) return;
      active = tile.One([&] { return AtomicExchange(of_long + 1, 0u); }) != 0;
      if (dim % 4 == 0) {
        AddChunks<4>(tile, begin, chunks, dim);
      } else {
        AddChunks<1>(tile, begin, chunks, dim);
      }
    }
    Finish(tile, begin, active);
  }

  // An id without a row: padding, whose gradient makes its feature active as well.
  template <typename Tile>
  HET_DEV void Padding(const Tile& tile, uint32_t entry) const {
    const uint32_t feature = FeatureIn(static_cast<const uint64_t*>(segments.sorted)[entry]);
    if (tile.One([&] { return OldLoad(WordOf(counts.Active(feature))); }) != 0) return;
    const uint32_t dim = batch.use(batch.feature(feature).use).table.dim;
    const float* gradient = GradientOf(feature, static_cast<uint32_t*>(segments.order)[entry], dim);
    if (gradient == nullptr) return;
    if (tile.Any(dim, [&](uint64_t i) { return !(gradient[i] == 0.0f); })) {
      tile.Once([&] { MarkActive(feature); });
    }
  }

  // Also clears the counts.
  template <typename Tile>
  HET_DEV void Report(const Tile& tile) const {
    uint32_t* words = counts.words;
    uint32_t* to = report;
    tile.ForEach(Counts::kReported, [&](uint64_t i) { to[i] = AtomicExchange(words + i, 0u); });
    tile.ForEach(2 * uint64_t{counts.n_uses}, [&](uint64_t i) {
      uint32_t sum = 0;
      for (uint32_t stripe = 0; stripe < kStripes; ++stripe) {
        sum += AtomicExchange(words + counts.Ticks(stripe, 0) + i, 0u);
      }
      to[Counts::kReported + i] = sum;
    });
    tile.ForEach(counts.n_features, [&](uint64_t f) {
      to[Counts::kReported + 2 * counts.n_uses + f] =
          AtomicExchange(words + counts.Active(static_cast<uint32_t>(f)), 0u);
    });
  }

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t item) const {
    const uint32_t first = static_cast<uint32_t>(item) * kEntries;
    uint64_t before = first == 0 ? kNoPlace : segments.PlaceAt(first - 1);
    uint32_t begin = kEmpty;  // of the segment that the entry is in, where it matters
    for (uint32_t entry = first; entry - first < kEntries && entry < segments.positions; ++entry) {
      const uint64_t place = segments.PlaceAt(entry);
      if (place >= batch.places()) {
        Padding(tile, entry);
        continue;
      }
      if (place != before) {
        begin = entry;
      } else if (begin == kEmpty && entry >= kChunk && segments.PlaceAt(entry - kChunk) == place) {
        begin = BeginOfSegment(segments, entry);
      }
      before = place;
      if (begin != kEmpty && (entry - begin) % kChunk == 0) Piece(tile, begin, entry, place);
    }
    if (tile.LastOfAll(WordOf(Counts::kDone), tiles)) Report(tile);
  }
};

}  // namespace het::dev::sum
