// Device functions: the kernels of HetDevSum (sum.cu).
#pragma once

#include "het_tf/kernels/cuda/pack.h"
#include "het_tf/kernels/cuda/probe.h"
#include "het_tf/kernels/cuda/sum_view.h"
#include "het_tf/kernels/cuda/tile.h"
#include "het_tf/kernels/cuda/wanted.h"

namespace het::dev::sum {

constexpr uint64_t kChunk = 64;    // positions that are summed together (abi.h)
constexpr uint32_t kStripes = 16;  // stripes of device-wide counts, in lines of 128 bytes each

constexpr int kAtOnce = 4;  // concurrent loads of one lane

using GradientAddress = Dev<const float>;

// Counts on the device, in one array that is 0 between calls.
struct Counts {
  Dev<uint32_t> words;
  uint32_t n_uses;
  uint32_t n_features;
  static constexpr uint32_t kWanted = 0, kDue = 1, kBad = 2, kOverdue = 3, kReported = 4;
  static constexpr uint32_t kPieces = 4, kChunks = 5, kLong = 6, kDone = 7, kFixed = 8;

  HET_HOST_DEVICE uint32_t Ticks(uint32_t stripe, uint32_t use) const {
    return kFixed + stripe * StripeWords() + use;
  }
  HET_HOST_DEVICE uint32_t DueOf(uint32_t stripe, uint32_t use) const {
    return kFixed + stripe * StripeWords() + n_uses + use;
  }
  HET_HOST_DEVICE uint32_t Active(uint32_t feature) const {
    return kFixed + kStripes * StripeWords() + feature;
  }
  HET_HOST_DEVICE uint32_t StripeWords() const { return (2 * n_uses + 31) / 32 * 32; }
  // Words of the report for the host: kReported; ticks of the uses; due rows of the uses; active features.
  HET_HOST_DEVICE uint32_t reported() const { return kReported + 2 * n_uses + n_features; }
  HET_HOST_DEVICE uint32_t size() const { return Active(n_features); }
};

// Finds features whose gradient is not all zero.
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

HET_DEV uint64_t PlaceOf(const UseView& use, uint64_t row) {
  if ((row & kOfCall) == 0) return use.first_place + row;
  return use.first_place + use.table.buckets * kBucketSlots + (row & ~kOfCall);
}

// Finds each position's place. Not needed where the lookup's rows are kept.
template <typename Batch>
struct ProbeKernel {
  Batch batch;
  Dev<uint64_t> keys;

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t position) const {
    const Position p = PositionAt(batch, position);
    uint64_t place = batch.places;
    if (!p.padding) {
      const uint64_t row = Find(tile, batch, p.use, p.key);
      const bool here = row != kNowhere && (RowAt(batch, p.use, row).slot->used & kInvalid) == 0;
      place = here ? PlaceOf(batch.use(p.use), row) : kNowhere;
    }
    tile.Once([&] { static_cast<uint64_t*>(keys)[position] = place; });
  }
};

template <typename Batch>
struct KeysKernel {
  Batch batch;
  WantedView wanted;
  Dev<const uint64_t> kept;  // rows that the lookup has found; null: the places are in `keys`
  Dev<uint64_t> keys;
  Dev<uint32_t> order;
  Dev<GradientAddress> addresses;
  Dev<uint32_t> active;  // for each feature

  HET_DEV void Do(uint64_t position) const {
    const Position p = PositionAt(batch, position);
    const FeatureView& feature = batch.feature(p.feature);
    const uint64_t none = batch.places;
    const uint32_t dim = batch.use(p.use).table.dim;
    uint64_t* key = static_cast<uint64_t*>(keys) + position;
    static_cast<uint32_t*>(order)[position] = static_cast<uint32_t>(position);
    if (static_cast<uint32_t*>(active)[p.feature] == 0) {  // its gradients may be null
      *key = none;
      return;
    }
    static_cast<GradientAddress*>(addresses)[position] = feature.gradients.Plus(p.at * dim);
    if (!kept.null()) {
      *key = p.padding ? none
                       : PlaceOf(batch.use(p.use), static_cast<const uint64_t*>(kept)[position] & ~kLeftOut);
      return;
    }
    if (*key == kNowhere) {
      WantOnce(wanted, batch, position, p, HET_DEV_NO_BASE);
      *key = none;
    }
  }

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t item) const {
    tile.ForEach(32, [&](uint64_t i) {
      if (item * 32 + i < batch.positions) Do(item * 32 + i);
    });
  }
};

// What is summed together: a segment of up to kChunk entries, or a chunk of a longer one.
struct Piece {
  uint32_t begin, end;
  uint32_t of_long;  // kEmpty: it is a whole segment
  uint32_t chunk;    // its partial sum
};
// A longer segment.
struct Long {
  uint32_t entry;
  uint32_t first_chunk;
  uint32_t chunks;
  uint32_t done;
};

// Returns the first entry after `entry` with another place.
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

// Lists the pieces, in any order: a lane an entry.
struct PiecesKernel {
  Segments segments;
  uint64_t none;  // the place of entries that are not summed
  Counts counts;
  Dev<Piece> pieces;
  Dev<Long> longs;

  HET_DEV void List(uint64_t entry) const {
    const uint64_t* sorted = segments.sorted;
    const uint64_t place = sorted[entry];
    if (place == none || (entry > 0 && sorted[entry - 1] == place)) return;
    uint32_t* words = counts.words;
    Piece* to = pieces;
    const auto begin = static_cast<uint32_t>(entry);
    if (entry + kChunk >= segments.positions || sorted[entry + kChunk] != place) {
      uint64_t end = entry + 1;
      while (end < segments.positions && sorted[end] == place) ++end;
      to[AtomicAdd(words + Counts::kPieces, 1u)] = {begin, static_cast<uint32_t>(end), kEmpty, 0};
      return;
    }
    const auto end = static_cast<uint32_t>(EndOfSegment(segments, entry));
    const auto chunks = static_cast<uint32_t>((end - begin + kChunk - 1) / kChunk);
    const uint32_t first = AtomicAdd(words + Counts::kChunks, chunks);
    const uint32_t number = AtomicAdd(words + Counts::kLong, 1u);
    static_cast<Long*>(longs)[number] = {begin, first, chunks, 0};
    to += AtomicAdd(words + Counts::kPieces, chunks);
    for (uint32_t c = 0; c < chunks; ++c) {
      const auto from = static_cast<uint32_t>(begin + c * kChunk);
      const auto till = static_cast<uint32_t>(end - from < kChunk ? end : from + kChunk);
      to[c] = {from, till, number, first + c};
    }
  }

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t item) const {
    tile.ForEach(32, [&](uint64_t i) {
      if (item * 32 + i < segments.positions) List(item * 32 + i);
    });
  }
};

// Sums a piece. Who sums the last chunk of a segment adds its chunks in order; who is the last of all
// reports.
template <typename Batch>
struct SumKernel {
  Batch batch;
  Segments segments;
  Dev<GradientAddress> addresses;
  Counts counts;
  float scale;
  int aligned;  // all features' gradients are aligned to 16 bytes
  Dev<Piece> pieces;
  Dev<Long> longs;
  Dev<float> partial_sums;
  Dev<uint32_t> due;
  Dev<uint64_t> due_keys;
  Dev<uint32_t> due_uses;
  Dev<uint64_t> bad_keys;
  Dev<uint32_t> bad_uses;
  Dev<uint32_t> report;  // page-locked

  // to[0, dim) = gradients of entries [begin, end), added in order, times `by`.
  template <int V, typename Tile>
  HET_DEV void AddGradients(const Tile& tile, uint64_t begin, uint64_t end, uint32_t dim, float by,
                            float* to) const {
    const uint32_t* order = segments.order;
    const GradientAddress* address = addresses;
    ForPacks<V>(tile, dim, [&](uint64_t i) {
      Pack<V> sum = LoadOrZero<V>(nullptr, 0);
      // Several loads are in flight at a time. Adding zeros past the end changes no sum, since no sum is -0.
      for (uint64_t e = begin; e < end; e += kAtOnce) {
        Pack<V> gradient[kAtOnce];
        for (int j = 0; j < kAtOnce; ++j) {
          const float* from = e + j < end ? static_cast<const float*>(address[order[e + j]]) + i : nullptr;
          gradient[j] = LoadOrZero<V>(from, 0);
        }
        for (int j = 0; j < kAtOnce; ++j) {
          for (int k = 0; k < V; ++k) sum.at[k] += gradient[j].at[k];
        }
      }
      for (int k = 0; k < V; ++k) sum.at[k] *= by;
      Store<V>(to + i, sum);
    });
  }
  template <typename Tile>
  HET_DEV void AddGradients(const Tile& tile, uint64_t begin, uint64_t end, uint32_t dim, float by,
                            float* to) const {
    if (aligned != 0 && dim % 4 == 0) {
      AddGradients<4>(tile, begin, end, dim, by, to);
    } else {
      AddGradients<1>(tile, begin, end, dim, by, to);
    }
  }

  HET_DEV float* SumAt(uint64_t entry) const {
    return static_cast<float*>(segments.sums) + entry * segments.sum_stride;
  }

  // Call when the sum of the segment at `entry` is complete. Counts it.
  template <typename Tile>
  HET_DEV void Finish(const Tile& tile, uint64_t entry, const Place& place) const {
    const UseView& use = batch.use(place.use);
    const float* sum = SumAt(entry);
    tile.Sync();
    // x * 0 is not 0 only for NaN and Inf.
    const bool bad = tile.Any(use.table.dim, [&](uint64_t i) { return !(sum[i] * 0.0f == 0.0f); });
    tile.Once([&] {
      const Slot& slot = *RowAt(batch, place.use, place.row).slot;
      uint32_t* words = counts.words;
      const uint32_t stripe = static_cast<uint32_t>(entry / 8 % kStripes);
      AtomicAdd(words + counts.Ticks(stripe, place.use), 1u);
      if (WillLeave(use, place, slot)) {
        const uint32_t at = Tile::Append(words + Counts::kDue);
        static_cast<uint32_t*>(due)[at] = static_cast<uint32_t>(entry);
        static_cast<uint64_t*>(due_keys)[at] = static_cast<uint64_t>(slot.key);
        static_cast<uint32_t*>(due_uses)[at] = place.use;
        AtomicAdd(words + counts.DueOf(stripe, place.use), 1u);
        if (IsOverdue(use, place, slot)) AtomicAdd(words + Counts::kOverdue, 1u);
      }
      if (bad) {
        const uint32_t at = Tile::Append(words + Counts::kBad);
        static_cast<uint64_t*>(bad_keys)[at] = static_cast<uint64_t>(slot.key);
        static_cast<uint32_t*>(bad_uses)[at] = place.use;
      }
    });
  }

  // to = the partial sums of a segment, added in order, times scale
  template <int V, typename Tile>
  HET_DEV void AddChunks(const Tile& tile, const Long& of, uint32_t dim, float* to) const {
    const uint64_t stride = segments.sum_stride;
    const float* partial = static_cast<float*>(partial_sums) + of.first_chunk * stride;
    ForPacks<V>(tile, dim, [&](uint64_t i) {
      Pack<V> sum = LoadOrZero<V>(nullptr, 0);
      for (uint64_t c = 0; c < of.chunks; c += 2 * kAtOnce) {
        Pack<V> some[2 * kAtOnce];
        for (int j = 0; j < 2 * kAtOnce; ++j) {
          some[j] =
              c + j < of.chunks ? LoadFresh<V>(partial + (c + j) * stride + i) : LoadOrZero<V>(nullptr, 0);
        }
        for (int j = 0; j < 2 * kAtOnce; ++j) {
          for (int k = 0; k < V; ++k) sum.at[k] += some[j].at[k];
        }
      }
      for (int k = 0; k < V; ++k) sum.at[k] *= scale;
      Store<V>(to + i, sum);
    });
  }

  template <typename Tile>
  HET_DEV void Do(const Tile& tile, const Piece& piece) const {
    const Place at = PlaceAt(segments, batch, piece.begin);
    const uint32_t dim = batch.use(at.use).table.dim;
    if (piece.of_long == kEmpty) {
      AddGradients(tile, piece.begin, piece.end, dim, scale, SumAt(piece.begin));
      Finish(tile, piece.begin, at);
      return;
    }
    AddGradients(tile, piece.begin, piece.end, dim, 1.0f,
                 static_cast<float*>(partial_sums) + piece.chunk * uint64_t{segments.sum_stride});
    Long& of = static_cast<Long*>(longs)[piece.of_long];
    if (!tile.Last(&of.done, of.chunks)) return;
    if (dim % 4 == 0) {
      AddChunks<4>(tile, of, dim, SumAt(of.entry));
    } else {
      AddChunks<1>(tile, of, dim, SumAt(of.entry));
    }
    Finish(tile, of.entry, at);
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
    tile.ForEach(Counts::kDone - Counts::kReported,
                 [&](uint64_t i) { AtomicStore(words + Counts::kReported + i, 0u); });
  }

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t item) const {
    uint32_t* words = counts.words;
    const uint32_t n = tile.One([&] { return AtomicLoad(words + Counts::kPieces); });
    if (item >= n) {
      if (item == 0) Report(tile);
      return;
    }
    Do(tile, static_cast<Piece*>(pieces)[item]);
    if (tile.LastOfAll(words + Counts::kDone, n)) Report(tile);
  }
};

}  // namespace het::dev::sum
