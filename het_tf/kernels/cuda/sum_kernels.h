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

// Counts on the device, in one array that is zeroed and copied as a whole.
struct Counts {
  Dev<uint32_t> words;
  uint32_t n_uses;
  uint32_t n_features;
  static constexpr uint32_t kDue = 0, kBad = 1, kChunks = 2, kLong = 3, kFixed = 4;

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
  HET_HOST_DEVICE uint32_t size() const { return Active(n_features); }
};

// Finds features whose gradient is not all zero.
struct ActiveKernel {
  BatchView batch;
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
struct ProbeKernel {
  BatchView batch;
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

struct KeysKernel {
  BatchView batch;
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

// Operations on segments that the three summing kernels share.
struct Summing {
  BatchView batch;
  Segments segments;
  Dev<GradientAddress> addresses;
  Counts counts;
  float scale;
  int aligned;  // all features' gradients are aligned to 16 bytes
  Dev<uint32_t> due;
  Dev<uint64_t> due_keys;
  Dev<uint32_t> due_uses;
  Dev<uint64_t> bad_keys;
  Dev<uint32_t> bad_uses;
  // Segments of more than kChunk entries: first entry, first chunk, chunks; and each chunk's entries.
  Dev<uint32_t> long_entry, long_chunk, long_chunks;
  Dev<uint32_t> chunk_begin, chunk_end;
  Dev<float> partial_sums;

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
      }
      if (bad) {
        const uint32_t at = Tile::Append(words + Counts::kBad);
        static_cast<uint64_t*>(bad_keys)[at] = static_cast<uint64_t>(slot.key);
        static_cast<uint32_t*>(bad_uses)[at] = place.use;
      }
    });
  }
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
    if (!BeginsSegment(s.segments, s.batch, entry)) return;
    const uint64_t* sorted = s.segments.sorted;
    const uint64_t place = sorted[entry];
    if (entry + kChunk < s.segments.positions && sorted[entry + kChunk] == place) {
      Postpone(tile, entry);
      return;
    }
    uint64_t end = entry + 1;
    while (end < s.segments.positions && sorted[end] == place) ++end;
    const Place at = PlaceAt(s.segments, s.batch, entry);
    s.AddGradients(tile, entry, end, s.batch.use(at.use).table.dim, s.scale, s.SumAt(entry));
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
    s.AddGradients(tile, begin, static_cast<uint32_t*>(s.chunk_end)[chunk], s.batch.use(at.use).table.dim,
                   1.0f, static_cast<float*>(s.partial_sums) + chunk * s.segments.sum_stride);
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
    tile.ForEach(s.batch.use(at.use).table.dim, [&](uint64_t d) {
      float sum = 0.0f;
      for (uint64_t c = 0; c < chunks; c += kAtOnce * kAtOnce) {
        float some[kAtOnce * kAtOnce];
        for (int j = 0; j < kAtOnce * kAtOnce; ++j)
          some[j] = c + j < chunks ? partial[(c + j) * stride + d] : 0.0f;
        for (const float x : some) sum += x;
      }
      to[d] = sum * s.scale;
    });
    s.Finish(tile, entry, at);
  }
};

}  // namespace het::dev::sum
