// Kernels of HetDevInstall that execute its plan.
#pragma once

#include "het_tf/kernels/cuda/compose.h"
#include "het_tf/kernels/cuda/install_plan.h"
#include "het_tf/kernels/cuda/marks.h"

namespace het::dev {

// New rows of the call; those of one use are consecutive.
struct NewRows {
  Dev<uint64_t> of_use;  // [n_uses][2]: new rows of earlier uses; begin of its floats
  CallRows rows;         // with room for all of them
  uint32_t first;        // number of the first new row
};

template <typename Batch>
struct PlaceKernel {
  Batch batch;  // with the call's rows after the install
  AnswersView answers;
  PlanView plan;
  NewRows new_rows;

  template <typename Tile>
  HET_DEV uint64_t PlaceOf(const Tile& tile, uint64_t i, uint32_t use, const TableView& table) const {
    const uint64_t row = static_cast<uint64_t*>(plan.rows)[i];
    if (row != kNowhere) return row;
    const uint32_t of_this_use = static_cast<uint32_t*>(plan.new_rows)[i];
    const uint64_t* of_use = static_cast<uint64_t*>(new_rows.of_use) + uint64_t{use} * 2;
    const uint64_t number = new_rows.first + of_use[0] + of_this_use;
    tile.Once([&] {
      static_cast<uint32_t*>(new_rows.rows.uses)[number] = use;
      static_cast<uint64_t*>(new_rows.rows.begins)[number] = of_use[1] + of_this_use * FloatsInCall(table);
    });
    tile.Sync();
    return kOfCall | number;
  }

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t i) const {
    const uint32_t answer = static_cast<uint32_t*>(plan.order)[i];
    const uint32_t use_number = static_cast<uint32_t*>(answers.uses)[answer];
    const UseView& use = batch.use(use_number);
    const TableView& table = use.table;
    const int64_t key = static_cast<int64_t*>(answers.keys)[answer];
    const int64_t base = static_cast<int64_t*>(answers.bases)[answer];
    const float* from = static_cast<float*>(answers.floats) + static_cast<uint64_t*>(answers.begins)[answer];
    const bool fresh = static_cast<uint8_t*>(plan.fresh)[i] != 0;
    const uint64_t row = PlaceOf(tile, i, use_number, table);
    const bool of_call = (row & kOfCall) != 0;
    const bool subscribed = !of_call && (static_cast<uint8_t*>(answers.flags)[answer] & kSubscribe) != 0;
    const RowRef ref = RowAt(batch, use_number, row);
    tile.Copy(ref.value, from, table.dim);
    tile.Copy(ref.state, from + table.dim, table.state_floats);
    if (fresh) {
      tile.Once([&] {
        Slot slot = {};
        slot.key = key;
        slot.base = base;
        slot.stamp = use.stamp;
        slot.used = Renewed(kOneUse, subscribed);
        *ref.slot = slot;
        if (!of_call) {
          static_cast<uint8_t*>(table.digests)[row] = DigestOf(HashKey(key, table.hash_seed));
        }
      });
      return;
    }
    const uint32_t ticks = ref.slot->ticks;
    tile.Sync();
    if (ticks > 0 && ref.update != nullptr) MergeOnto(tile, table, ref.update, ticks, ref);
    tile.Once([&] {
      ref.slot->base = base;
      ref.slot->used = Renewed(ref.slot->used, subscribed);
    });
  }
};

struct IndexKernel {
  CallRows rows;

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t row) const {
    tile.Once([&] {
      const uint32_t use = static_cast<uint32_t*>(rows.uses)[row];
      uint32_t* index = rows.index;
      uint32_t at =
          static_cast<uint32_t>(HashInCall(use, static_cast<Slot*>(rows.slots)[row].key)) & rows.mask;
      while (AtomicCas(&index[at], kEmpty, static_cast<uint32_t>(row)) != kEmpty) at = (at + 1) & rows.mask;
    });
  }
};

}  // namespace het::dev
