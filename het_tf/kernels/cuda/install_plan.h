// Kernels of HetDevInstall's plan, which changes no row; install.cu executes it when it has all memory.
#pragma once

#include "het_tf/kernels/cuda/probe.h"
#include "het_tf/kernels/cuda/tile.h"

namespace het::dev {

constexpr uint8_t kAdmit = 1, kSubscribe = 2;

// Answers for all tables, in the caller's order.
struct AnswersView {
  Dev<int64_t> keys;
  Dev<int64_t> bases;
  Dev<uint64_t> begins;  // of each row, in `floats`
  Dev<uint32_t> uses;
  Dev<uint8_t> flags;  // kAdmit, kSubscribe
  Dev<float> floats;
};

// The plan for answer number order[i]; i counts answers by (use, bucket, key).
struct PlanView {
  Dev<uint32_t> order;
  Dev<uint64_t> homes;     // the bucket, numbered over all uses
  Dev<uint64_t> rows;      // destination; kNowhere: a new row of the call
  Dev<uint8_t> fresh;      // 1: it was absent
  Dev<uint32_t> new_rows;  // of a new row of the call: its number among those of the use
  // Evicted rows with an update to export: in any order, one list for all uses.
  Dev<uint64_t> victim_keys;
  Dev<uint64_t> victim_rows;
  Dev<uint32_t> victim_uses;
  // Evicted rows without an update that are subscribed, likewise.
  Dev<int64_t> left_keys;
  Dev<uint32_t> left_uses;
  // [n_uses][kPlanCounts], the numbers of victims and of left rows, and 0: a key is there twice, else kNone
  Dev<uint32_t> counts;
  uint32_t n_uses;

  static constexpr uint32_t kNone = 1;
  HET_HOST_DEVICE uint32_t all_victims() const;
  HET_HOST_DEVICE uint32_t all_left() const { return all_victims() + 1; }
  HET_HOST_DEVICE uint32_t duplicate() const { return all_victims() + 2; }
  HET_HOST_DEVICE uint32_t size() const { return all_victims() + 3; }
};
enum PlanCount : uint32_t { kNewRows, kVictims, kInserts, kEvictions, kPlanCounts };
HET_HOST_DEVICE inline uint32_t PlanView::all_victims() const { return n_uses * kPlanCounts; }

// The row with the lowest score is evicted first; rows that must stay have the highest score.
struct Score {
  uint64_t high = 0;
  uint64_t key = 0;
};
constexpr uint64_t kStays = ~uint64_t{0};
HET_DEV bool operator<(const Score& a, const Score& b) {
  return a.high != b.high ? a.high < b.high : a.key < b.key;
}

HET_DEV Score ScoreOf(const UseView& use, const Slot& slot) {
  Score score;
  score.key = static_cast<uint64_t>(slot.key);
  if (slot.stamp >= use.pinned_from) {
    score.high = kStays;
  } else {
    const uint64_t frequency = use.table.policy == HET_DEV_LRU ? 0 : FrequencyOf(slot.used);
    score.high = frequency << 32 | slot.stamp;
  }
  return score;
}

// Also clears the counts.
template <typename Batch>
struct HomesKernel {
  Batch batch;
  AnswersView answers;
  PlanView plan;
  uint64_t n;
  Dev<const uint32_t> order;  // of the caller, or by key
  Dev<uint64_t> homes;

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t item) const {
    tile.ForEach(32, [&](uint64_t lane) {
      const uint64_t i = item * 32 + lane;
      if (i >= n) return;
      const uint32_t answer = static_cast<const uint32_t*>(order)[i];
      const UseView& use = batch.use(static_cast<uint32_t*>(answers.uses)[answer]);
      const uint64_t hash = HashKey(static_cast<int64_t*>(answers.keys)[answer], use.table.hash_seed);
      static_cast<uint64_t*>(homes)[i] = use.first_bucket + BucketOf(hash, use.table.buckets);
    });
    if (item > 0) return;
    tile.ForEach(plan.size(), [&](uint64_t i) {
      static_cast<uint32_t*>(plan.counts)[i] = i == plan.duplicate() ? PlanView::kNone : 0;
    });
  }
};

// One tile plans all answers of a bucket.
template <typename Batch>
struct PlanKernel {
  Batch batch;
  AnswersView answers;
  PlanView plan;
  uint64_t n;

  // On one lane. A bucket has one or two answers; where it has many they are sorted by key already.
  HET_DEV void OrderByKey(uint64_t first, uint64_t end) const {
    uint32_t* order = plan.order;
    const int64_t* keys = answers.keys;
    for (uint64_t i = first + 1; i < end; ++i) {
      const uint32_t answer = order[i];
      const auto key = static_cast<uint64_t>(keys[answer]);
      uint64_t to = i;
      for (; to > first && static_cast<uint64_t>(keys[order[to - 1]]) > key; --to) order[to] = order[to - 1];
      order[to] = answer;
    }
  }

  HET_DEV int64_t KeyAt(uint64_t i) const {
    return static_cast<int64_t*>(answers.keys)[static_cast<uint32_t*>(plan.order)[i]];
  }

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t first) const {
    const uint64_t* homes = plan.homes;
    const uint64_t home = homes[first];
    if (first > 0 && homes[first - 1] == home) return;  // another tile plans this bucket
    uint64_t end = first + 1;
    while (end < n && homes[end] == home) ++end;
    tile.Once([&] { OrderByKey(first, end); });
    tile.Sync();
    const uint32_t use_number =
        static_cast<uint32_t*>(answers.uses)[static_cast<uint32_t*>(plan.order)[first]];
    const UseView& use = batch.use(use_number);
    const uint64_t bucket = (home - use.first_bucket) * kBucketSlots;
    uint64_t* rows = plan.rows;
    uint32_t* all_counts = plan.counts;

    uint32_t taken = 0;  // slots of rows that this call installs
    for (uint64_t i = first; i < end; ++i) {
      const int64_t key = KeyAt(i);
      if (i > first && KeyAt(i - 1) == key)
        tile.Once([&] { AtomicStore(all_counts + plan.duplicate(), 0u); });
      const uint64_t row = Find(tile, batch, use_number, key);
      if (row != kNowhere && (row & kOfCall) == 0) taken |= uint32_t{1} << (row - bucket);
      tile.Once([&] { rows[i] = row; });
    }
    tile.Sync();

    const uint8_t* digests = static_cast<uint8_t*>(use.table.digests) + bucket;
    const Slot* slots = static_cast<Slot*>(use.table.slots) + bucket;
    const uint32_t free = tile.Match32(digests, 0);
    uint32_t* of_use = all_counts + use_number * kPlanCounts;
    uint32_t counts[kPlanCounts] = {};
    for (uint64_t i = first; i < end; ++i) {
      const int fresh = tile.One([&] { return rows[i] == kNowhere ? 1 : 0; });
      uint32_t new_row = 0;
      uint32_t victim = 0;
      bool left = false;
      if (fresh != 0) {
        const uint32_t answer = static_cast<uint32_t*>(plan.order)[i];
        const bool admit = (static_cast<uint8_t*>(answers.flags)[answer] & kAdmit) != 0;
        int slot = -1;
        if (admit && (free & ~taken) != 0) {
          slot = LowestBit(free & ~taken);
        } else if (admit && taken != ~uint32_t{0}) {
          const int lowest = tile.ArgMin32(~taken, [&](int s) { return ScoreOf(use, slots[s]); });
          if (ScoreOf(use, slots[lowest]).high != kStays) {
            slot = lowest;
            victim = slots[lowest].ticks > 0 ? 1 : 0;
            left = victim == 0 && (slots[lowest].used & kSubscribed) != 0;
            ++counts[kEvictions];
          }
        }
        if (slot >= 0) {
          taken |= uint32_t{1} << slot;
          ++counts[kInserts];
        } else {
          new_row = 1;
        }
        counts[kVictims] += victim;
        tile.Once([&] {
          rows[i] = slot >= 0 ? bucket + static_cast<uint64_t>(slot) : kNowhere;
          if (new_row != 0) static_cast<uint32_t*>(plan.new_rows)[i] = AtomicAdd(of_use + kNewRows, 1u);
          if (left) {
            const uint32_t at = AtomicAdd(all_counts + plan.all_left(), 1u);
            static_cast<int64_t*>(plan.left_keys)[at] = slots[slot].key;
            static_cast<uint32_t*>(plan.left_uses)[at] = use_number;
          }
          if (victim == 0) return;
          const uint32_t at = AtomicAdd(all_counts + plan.all_victims(), 1u);
          static_cast<uint64_t*>(plan.victim_keys)[at] = static_cast<uint64_t>(slots[slot].key);
          static_cast<uint64_t*>(plan.victim_rows)[at] = bucket + static_cast<uint64_t>(slot);
          static_cast<uint32_t*>(plan.victim_uses)[at] = use_number;
        });
      }
      tile.Once([&] { static_cast<uint8_t*>(plan.fresh)[i] = static_cast<uint8_t>(fresh); });
    }
    tile.ForEach(kPlanCounts, [&](uint64_t c) {
      if (counts[c] > 0) AtomicAdd(&of_use[c], counts[c]);
    });
  }
};

}  // namespace het::dev
