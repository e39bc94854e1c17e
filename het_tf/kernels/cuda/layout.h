// Data structures in device memory, and how kernels refer to them.
//
// A table of B buckets:
//
//   digests   B x 32 bytes: 0 for a free slot, else 8 bits of the key's hash. One sector of memory a bucket
//   slots     B x 32 Slots of 32 bytes, a sector each
//   records   B x 32 records of floats, [value | state | dv | a]: the value, the optimizer's slots, the
//   unsent update.
//             Uninitialised: the update while a row has no ticks. Without keep_updates there is none
//
// Each part of a record begins at a multiple of 16 bytes (of 4 in a table of dim 1), a record at one of 32
// bytes, the sectors of memory; records below 32 bytes share one. So a tick moves two places of memory: slot
// and record.
//
// A key is in its home bucket or absent. So a lookup reads a sector of digests, a Slot for each equal digest
// (1.1 on average) and the value's part of a record.
//
// A row's number is its position: bucket * 32 + slot. A call's rows have kOfCall set and are numbered from 0.
#pragma once

#include "het_tf/core/wire/layout.h"
#include "het_tf/ext/gpu/cc/abi.h"
#include "het_tf/kernels/cuda/dev_ptr.h"
#include "het_tf/kernels/cuda/optimizers.h"

namespace het::dev {

constexpr uint32_t kBucketSlots = 32;
constexpr uint64_t kOfCall = uint64_t{1} << 63;
constexpr uint64_t kNowhere = ~uint64_t{0};  // not a row
constexpr uint32_t kEmpty = ~uint32_t{0};    // an entry of a hash set

// Where a lookup has found the row of an id, in one word, by whose lowest bits HetDevSum sorts: place |
// feature << kPlaceBits, perhaps with kLeftOut. A *place* numbers the rows of all tables of the batch, and
// then the call's own rows. So places stay while the call gets rows.
constexpr int kPlaceBits = 42;
constexpr uint64_t kNoPlace = (uint64_t{1} << kPlaceBits) - 1;  // the row is absent or invalid
constexpr uint64_t kPaddingPlace = kNoPlace - 1;                // the id is padding
constexpr uint32_t kMostFeatures = uint32_t{1} << 20;
constexpr uint64_t kLeftOut = uint64_t{1} << 62;  // the lookup has not given the row
HET_HOST_DEVICE inline uint64_t FoundWord(uint32_t feature, uint64_t place) {
  return uint64_t{feature} << kPlaceBits | place;
}
HET_HOST_DEVICE inline uint64_t PlaceIn(uint64_t word) { return word & kNoPlace; }
HET_HOST_DEVICE inline uint32_t FeatureIn(uint64_t word) {
  return static_cast<uint32_t>(word >> kPlaceBits) & (kMostFeatures - 1);
}

// The ticks of a row with this clock, as in core/row/row_store.h.
HET_HOST_DEVICE inline int64_t AgeOf(int64_t clock) { return clock & ((int64_t{1} << 20) - 1); }
HET_HOST_DEVICE inline uint64_t BucketOf(uint64_t hash, uint64_t buckets) {
  return ((hash >> 32) * buckets) >> 32;
}
HET_HOST_DEVICE inline uint8_t DigestOf(uint64_t hash) {
  const uint8_t digest = static_cast<uint8_t>(hash);
  return digest == 0 ? 1 : digest;
}
HET_HOST_DEVICE inline uint32_t StrideOf(uint32_t floats) {
  return floats <= 1 ? floats : (floats + 3) / 4 * 4;
}

// Where the parts of a record begin, in floats.
struct RecordLayout {
  uint32_t state = 0;
  uint32_t update = 0;
  uint32_t stride = 0;
};
inline RecordLayout RecordOf(uint32_t dim, uint32_t row_floats, bool keep_updates) {
  RecordLayout record;
  record.state = StrideOf(dim);
  const uint32_t row = record.state + (row_floats - dim);
  record.update = dim == 1 ? row : (row + 3) / 4 * 4;
  const uint32_t floats = keep_updates ? record.update + row_floats : row;
  record.stride = (floats + 7) / 8 * 8;
  for (uint32_t small = 1; small < 8; small *= 2) {
    if (floats <= small && record.stride == 8) record.stride = small;
  }
  return record;
}

struct alignas(32) Slot {
  int64_t key;
  int64_t base;    // the store's clock that the row contains
  uint32_t ticks;  // own ticks, not exported; > 0: dirty
  uint32_t stamp;  // of the last training lookup that used it
  uint64_t used;   // see below
};
static_assert(sizeof(Slot) == 32);

// Slot::used: visit | frequency << 32 | copy. One word, so that a lookup changes it with one atomic exchange;
// 16-bit stores to scattered rows took four times as long as the whole lookup.
//   visit      HetDevContext::NextVisit of the last lookup that used the row, so that each counts it once
//   frequency  16 bits
//   copy       one of the next, or none: checked (marks.h)
constexpr uint64_t kInvalid = uint64_t{1} << 48;
constexpr uint64_t kSubscribed = uint64_t{1} << 49;
constexpr uint64_t kMoved = uint64_t{1} << 50;
constexpr uint64_t kCopyBits = kInvalid | kSubscribed | kMoved;
constexpr uint64_t kOneUse = uint64_t{1} << 32;
constexpr uint64_t kVisitBits = 0xffffffff;
constexpr uint64_t kFrequencyBits = uint64_t{0xffff} << 32;
HET_HOST_DEVICE inline uint32_t VisitOf(uint64_t used) { return static_cast<uint32_t>(used); }
HET_HOST_DEVICE inline uint16_t FrequencyOf(uint64_t used) { return static_cast<uint16_t>(used >> 32); }
HET_HOST_DEVICE inline uint64_t HalfUsed(uint64_t used) {
  return (used & ~kFrequencyBits) | ((used & kFrequencyBits) >> 1 & kFrequencyBits);
}

struct TableView {
  Dev<uint8_t> digests;
  Dev<Slot> slots;
  Dev<float> records;
  RecordLayout record;
  int keep_updates;  // 0: rows are never dirty
  uint64_t buckets;  // below 2^32
  uint64_t hash_seed;
  TableLayout layout;
  uint32_t dim;
  uint32_t row_floats;
  uint32_t state_floats;  // row_floats - dim
  int policy;
  OptimizerView optimizer;
};

// Size in floats of a call's row: [value | state], both at multiples of 16 bytes.
HET_HOST_DEVICE inline uint64_t FloatsInCall(const TableView& table) {
  return (uint64_t{table.record.state} + table.state_floats + 3) / 4 * 4;
}

// Pointers to a row's floats.
struct RowRef {
  Slot* slot;
  float* value;
  float* state;
  float* update;  // [dv | a], contiguous; null: not kept (keep_updates is 0, or a row of a call)
};

// A call's own rows: a hash set of (use, key) with row numbers, and rows of any width.
struct CallRows {
  Dev<uint32_t> index;  // mask + 1 entries of row numbers; kEmpty: free. null: no rows
  Dev<Slot> slots;
  Dev<uint32_t> uses;
  Dev<uint64_t> begins;  // of each row in `floats`, which takes FloatsInCall()
  Dev<float> floats;
  uint32_t mask = 0;
  uint32_t n = 0;
};

// The partitions of the store whose subscriptions hold.
enum Trust : int { kTrustsNone, kTrustsSome, kTrustsAll };

struct UseView {
  TableView table;
  uint64_t pinned_from;
  int64_t push_bound;
  uint32_t push_every;
  uint32_t push_early;
  uint32_t push_from;
  uint32_t stamp;
  float learning_rate;
  int check;
  int trust;                   // a Trust
  Dev<const uint8_t> trusted;  // with kTrustsSome: of each partition
  uint64_t first_bucket;       // of its table, in the batch
};

// Kernels that have a lane for each id work on 32 ids of one feature at a time: an *item*.
constexpr uint64_t kItem = 32;

struct FeatureView {
  Dev<const int64_t> ids;
  Dev<float> rows;
  Dev<const float> gradients;
  uint64_t begin;  // its first position; positions are numbered over all features
  uint64_t first_item;
  uint64_t n;
  uint32_t use;
  int has_padding;
  int64_t padding_id;
};

struct BatchSizes {
  CallRows call;
  uint64_t positions;  // below 2^32 - 1
  uint64_t items;
  uint64_t buckets;  // of all uses
  uint32_t n_uses;
  uint32_t n_features;
  uint32_t visit;  // of a lookup

  HET_HOST_DEVICE uint64_t table_places() const { return buckets * kBucketSlots; }
  HET_HOST_DEVICE uint64_t places() const { return table_places() + call.n; }
};

// From a row as Find (probe.h) returns it to its place, and back.
HET_DEV uint64_t PlaceOf(const BatchSizes& sizes, const UseView& use, uint64_t row) {
  return (row & kOfCall) == 0 ? use.first_bucket * kBucketSlots + row
                              : sizes.table_places() + (row & ~kOfCall);
}
HET_DEV uint64_t RowOf(const BatchSizes& sizes, const UseView& use, uint64_t place) {
  return place < sizes.table_places() ? place - use.first_bucket * kBucketSlots
                                      : kOfCall | (place - sizes.table_places());
}

// A call with a HetDevBatch. Uses and features are in device memory, for any number of them.
struct BatchView : BatchSizes {
  Dev<const UseView> uses;
  Dev<const FeatureView> features;

  HET_DEV const UseView& use(uint32_t i) const { return static_cast<const UseView*>(uses)[i]; }
  HET_DEV const FeatureView& feature(uint32_t i) const {
    return static_cast<const FeatureView*>(features)[i];
  }
};

// The same as a kernel's parameter, in constant memory: nothing to copy, no load that waits for another, and
// the compiler knows that what they point to is global memory.
struct ParameterBatch : BatchSizes {
  static constexpr uint32_t kMostUses = 32, kMostFeatures = 64;
  UseView uses[kMostUses];
  FeatureView features[kMostFeatures];

  HET_DEV const UseView& use(uint32_t i) const { return uses[i]; }
  HET_DEV const FeatureView& feature(uint32_t i) const { return features[i]; }
};

// An id of a batch.
struct Position {
  uint32_t feature;
  uint32_t use;
  uint64_t at;  // index in the feature
  int64_t key;
  bool padding;
};

// The last feature that begins at or before `number`, of the positions or of the items.
template <uint64_t FeatureView::*kBegin, typename Batch>
HET_DEV uint32_t FeatureOf(const Batch& batch, uint64_t number) {
  uint32_t low = 0;
  uint32_t high = batch.n_features;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    if (batch.feature(middle).*kBegin <= number) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

template <typename Batch>
HET_DEV uint32_t FeatureOfItem(const Batch& batch, uint64_t item) {
  return FeatureOf<&FeatureView::first_item>(batch, item);
}

template <typename Batch>
HET_DEV Position PositionAt(const Batch& batch, uint64_t position) {
  const uint32_t number = FeatureOf<&FeatureView::begin>(batch, position);
  const FeatureView& feature = batch.feature(number);
  Position result;
  result.feature = number;
  result.use = feature.use;
  result.at = position - feature.begin;
  result.key = static_cast<const int64_t*>(feature.ids)[result.at];
  result.padding = feature.has_padding != 0 && result.key == feature.padding_id;
  return result;
}

HET_DEV RowRef RowOfTable(const TableView& table, uint64_t row) {
  RowRef ref;
  ref.slot = static_cast<Slot*>(table.slots) + row;
  ref.value = static_cast<float*>(table.records) + row * table.record.stride;
  ref.state = ref.value + table.record.state;
  ref.update = table.keep_updates == 0 ? nullptr : ref.value + table.record.update;
  return ref;
}

// `row` must come from Find (probe.h) and must not be kNowhere.
template <typename Batch>
HET_DEV RowRef RowAt(const Batch& batch, uint32_t use, uint64_t row) {
  const TableView& table = batch.use(use).table;
  if ((row & kOfCall) == 0) return RowOfTable(table, row);
  row &= ~kOfCall;
  RowRef ref;
  ref.slot = static_cast<Slot*>(batch.call.slots) + row;
  ref.value = static_cast<float*>(batch.call.floats) + static_cast<uint64_t*>(batch.call.begins)[row];
  ref.state = ref.value + table.record.state;
  ref.update = nullptr;
  return ref;
}

}  // namespace het::dev
