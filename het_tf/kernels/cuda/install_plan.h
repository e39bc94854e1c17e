// Kernels of HetDevInstall's plan, which changes no row; install.cu executes it when it has all memory.
#pragma once

#include "het_tf/kernels/cuda/probe.h"
#include "het_tf/kernels/cuda/tile.h"

namespace het::dev {

constexpr uint8_t kAdmit = 1;

// Answers for all tables, in the caller's order.
struct AnswersView {
  Dev<int64_t> keys;
  Dev<int64_t> bases;
  Dev<uint8_t> flags;  // kAdmit
  Dev<uint32_t> uses;
  Dev<uint64_t> begins;  // of each row, in `floats`
  Dev<float> floats;
};

// The plan for answer number order[i]; i counts answers by (use, bucket, key).
struct PlanView {
  Dev<uint32_t> order;
  Dev<uint64_t> homes;      // use << 32 | bucket
  Dev<uint64_t> rows;       // destination; kNowhere: a new row of the call
  Dev<uint8_t> fresh;       // 1: it was absent
  Dev<uint32_t> new_rows;   // 1: destination is a new row of the call
  Dev<uint32_t> victims;    // 1: the evicted row has an update to export
  Dev<uint32_t> counts;     // [n_uses][kPlanCounts]
  Dev<uint32_t> duplicate;  // the first i whose key is that of i - 1
};
enum PlanCount : uint32_t { kNewRows, kVictims, kInserts, kEvictions, kPlanCounts };

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

struct HomesKernel {
  BatchView batch;
  AnswersView answers;
  Dev<uint32_t> order;
  Dev<uint64_t> homes;

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t i) const {
    tile.Once([&] {
      const uint32_t answer = static_cast<uint32_t*>(order)[i];
      const uint32_t use = static_cast<uint32_t*>(answers.uses)[answer];
      const TableView& table = batch.use(use).table;
      const uint64_t hash = HashKey(static_cast<int64_t*>(answers.keys)[answer], table.hash_seed);
      static_cast<uint64_t*>(homes)[i] = uint64_t{use} << 32 | BucketOf(hash, table.buckets);
    });
  }
};

// One tile plans all answers of a bucket.
struct PlanKernel {
  BatchView batch;
  AnswersView answers;
  PlanView plan;
  uint64_t n;

  HET_DEV int64_t KeyAt(uint64_t i) const {
    return static_cast<int64_t*>(answers.keys)[static_cast<uint32_t*>(plan.order)[i]];
  }

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t first) const {
    const uint64_t* homes = plan.homes;
    const uint64_t home = homes[first];
    if (first > 0 && homes[first - 1] == home) return;  // another tile plans this bucket
    const uint32_t use_number = static_cast<uint32_t>(home >> 32);
    const UseView& use = batch.use(use_number);
    const uint64_t bucket = (home & 0xffffffff) * kBucketSlots;
    uint64_t* rows = plan.rows;

    uint32_t taken = 0;  // slots of rows that this call installs
    uint64_t end = first;
    for (; end < n && homes[end] == home; ++end) {
      const int64_t key = KeyAt(end);
      if (end > first && KeyAt(end - 1) == key) {
        tile.Once([&] { AtomicMin(static_cast<uint32_t*>(plan.duplicate), static_cast<uint32_t>(end)); });
      }
      const uint64_t row = Find(tile, batch, use_number, key);
      if (row != kNowhere && (row & kOfCall) == 0) taken |= uint32_t{1} << (row - bucket);
      tile.Once([&] { rows[end] = row; });
    }
    tile.Sync();

    const uint8_t* digests = static_cast<uint8_t*>(use.table.digests) + bucket;
    const Slot* slots = static_cast<Slot*>(use.table.slots) + bucket;
    const uint32_t free = tile.Match32(digests, 0);
    uint32_t counts[kPlanCounts] = {};
    for (uint64_t i = first; i < end; ++i) {
      const int fresh = tile.One([&] { return rows[i] == kNowhere ? 1 : 0; });
      uint32_t new_row = 0;
      uint32_t victim = 0;
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
            ++counts[kEvictions];
          }
        }
        if (slot >= 0) {
          taken |= uint32_t{1} << slot;
          ++counts[kInserts];
        } else {
          new_row = 1;
        }
        counts[kNewRows] += new_row;
        counts[kVictims] += victim;
        tile.Once([&] { rows[i] = slot >= 0 ? bucket + static_cast<uint64_t>(slot) : kNowhere; });
      }
      tile.Once([&] {
        static_cast<uint8_t*>(plan.fresh)[i] = static_cast<uint8_t>(fresh);
        static_cast<uint32_t*>(plan.new_rows)[i] = new_row;
        static_cast<uint32_t*>(plan.victims)[i] = victim;
      });
    }
    uint32_t* of_use = static_cast<uint32_t*>(plan.counts) + use_number * kPlanCounts;
    tile.ForEach(kPlanCounts, [&](uint64_t c) {
      if (counts[c] > 0) AtomicAdd(&of_use[c], counts[c]);
    });
  }
};

}  // namespace het::dev
