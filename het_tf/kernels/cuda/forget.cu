// HetDevForget, HetDevForgetKeys and HetDevInspect: operations on rows between steps.
#include <string>

#include "het_tf/kernels/cuda/marks.h"
#include "het_tf/kernels/cuda/probe.h"
#include "het_tf/kernels/cuda/table.h"
#include "het_tf/kernels/cuda/tile.h"

namespace het::dev {
namespace {

bool OnlyMarks(int what) { return what == HET_DEV_MOVED || what == HET_DEV_UNSUBSCRIBE; }

HET_HOST_DEVICE inline Mark MarkOf(int what) {
  return what == HET_DEV_MOVED         ? Mark::kNotify
         : what == HET_DEV_UNSUBSCRIBE ? Mark::kUnsubscribe
                                       : Mark::kInvalidate;
}

// On one lane. Several lanes may have the same row (HetDevForgetKeys): one of them acts.
HET_DEV void ForgetRow(const TableView& table, int what, uint64_t row, uint64_t* discarded) {
  Slot& slot = static_cast<Slot*>(table.slots)[row];
  uint8_t* digest = static_cast<uint8_t*>(table.digests) + row;
  if (what >= HET_DEV_INVALIDATE) return MarkRow(&slot, MarkOf(what));
  if (what == HET_DEV_DROP_CLEAN && AtomicLoad(&slot.ticks) > 0) return;
  if (what == HET_DEV_DROP) {
    const uint32_t ticks = AtomicExchange(&slot.ticks, 0u);
    if (ticks > 0) AtomicAdd(discarded, static_cast<uint64_t>(ticks));
  }
  AtomicStore(digest, static_cast<uint8_t>(0));
}

struct ForgetKernel {
  TableView table;
  int what;
  Dev<uint8_t> partitions;  // null: all
  Dev<uint64_t> discarded;

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t bucket) const {
    const uint64_t first = bucket * kBucketSlots;
    const uint32_t used = ~tile.Match32(static_cast<uint8_t*>(table.digests) + first, 0);
    const uint8_t* wanted = partitions;
    tile.ForEach(kBucketSlots, [&](uint64_t i) {
      if ((used >> i & 1) == 0) return;
      const int64_t key = static_cast<Slot*>(table.slots)[first + i].key;
      if (wanted != nullptr && wanted[table.layout.OfKey(key)] == 0) return;
      ForgetRow(table, what, first + i, discarded);
    });
  }
};

struct FindKernel {
  TableView table;
  Dev<int64_t> keys;
  Dev<uint64_t> rows;

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t i) const {
    const uint64_t row = FindInTable(tile, table, static_cast<int64_t*>(keys)[i]);
    tile.Once([&] { static_cast<uint64_t*>(rows)[i] = row; });
  }
};

struct ForgetRowsKernel {
  TableView table;
  int what;
  Dev<uint64_t> rows;
  Dev<uint64_t> discarded;

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t i) const {
    const uint64_t row = static_cast<uint64_t*>(rows)[i];
    if (row == kNowhere) return;
    tile.Once([&] { ForgetRow(table, what, row, discarded); });
  }
};

void CheckWhat(const HetDevTable& table, int what) {
  if (what >= HET_DEV_DROP && what <= HET_DEV_UNSUBSCRIBE) return;
  Fail(HET_DEV_INVALID, "table '" + table.name + "': what " + std::to_string(what) +
                            " is unknown; choose HET_DEV_DROP, HET_DEV_DROP_CLEAN, HET_DEV_INVALIDATE, "
                            "HET_DEV_MOVED or HET_DEV_UNSUBSCRIBE");
}

}  // namespace
}  // namespace het::dev

using namespace het::dev;  // NOLINT: the functions of the C ABI

int HetDevForget(HetDevContext* context, HetDevTable* table, int what, const uint8_t* partitions,
                 HetDevStream stream, uint64_t* discarded) {
  return Guard([&] {
    CheckWhat(*table, what);
    *discarded = 0;
    context->Begin(stream);
    if (!OnlyMarks(what)) ++table->forgets;
    if (what == HET_DEV_DROP && partitions == nullptr) table->evicted_below = 0;  // stamps may begin again
    ForgetKernel kernel{table->view, what, Dev<uint8_t>(), context->Scratch<uint64_t>(1)};
    if (partitions != nullptr)
      kernel.partitions = context->Upload(partitions, table->view.layout.partitions());
    if (OnlyMarks(what)) {
      Launch<32>(*context, "mark rows", table->view.buckets, kernel);
      return context->End();
    }
    uint64_t* result = context->HostScratch<uint64_t>(1);
    context->Fill(kernel.discarded, 0, 1);
    Launch<32>(*context, "forget", table->view.buckets, kernel);
    context->CopyOut(result, kernel.discarded, 1);
    context->Wait();
    *discarded = *result;
  });
}

int HetDevForgetKeys(HetDevContext* context, HetDevTable* table, int what, const int64_t* keys, uint64_t n,
                     HetDevStream stream, uint64_t* discarded) {
  return Guard([&] {
    CheckWhat(*table, what);
    *discarded = 0;
    if (n == 0) return;
    context->Begin(stream);
    const Dev<int64_t> of = context->Upload(keys, n);
    if (OnlyMarks(what)) {
      Launch<32>(*context, "mark rows", (n + 31) / 32, MarkKeysKernel{table->view, MarkOf(what), of, n});
      return context->End();
    }
    ++table->forgets;
    const Dev<uint64_t> rows = context->Scratch<uint64_t>(n);
    const Dev<uint64_t> sum = context->Scratch<uint64_t>(1);
    uint64_t* result = context->HostScratch<uint64_t>(1);
    context->Fill(sum, 0, 1);
    Launch<8>(*context, "find keys", n, FindKernel{table->view, of, rows});
    Launch<4>(*context, "forget keys", n, ForgetRowsKernel{table->view, what, rows, sum});
    context->CopyOut(result, sum, 1);
    context->Wait();
    *discarded = *result;
  });
}

int HetDevInspect(HetDevContext* context, HetDevTable* table, int64_t key, HetDevStream stream,
                  HetDevRowState* state, float* row, float* update) {
  return Guard([&] {
    *state = HetDevRowState{};
    context->Begin(stream);
    const TableView& view = table->view;
    const Dev<int64_t> keys = context->Upload(&key, 1);
    const Dev<uint64_t> rows = context->Scratch<uint64_t>(1);
    uint64_t* number = context->HostScratch<uint64_t>(1);
    Slot* slot = context->HostScratch<Slot>(1);
    Launch<8>(*context, "find keys", 1, FindKernel{view, keys, rows});
    context->CopyOut(number, rows, 1);
    context->Wait();
    if (*number == kNowhere) return;
    context->CopyOut(slot, view.slots.Plus(*number), 1);
    const Dev<float> record = view.records.Plus(*number * view.record.stride);
    if (row != nullptr) {
      context->CopyOut(row, record, view.dim);
      context->CopyOut(row + view.dim, record.Plus(view.record.state), view.state_floats);
    }
    context->Wait();
    if (update != nullptr && slot->ticks > 0) {
      context->CopyOut(update, record.Plus(view.record.update), view.row_floats);
      context->Wait();
    }
    state->found = 1;
    state->invalid = (slot->used & kInvalid) != 0 ? 1 : 0;
    state->base = slot->base;
    state->ticks = slot->ticks;
    state->stamp = slot->stamp;
    state->frequency = FrequencyOf(slot->used);
    state->subscribed = (slot->used & kSubscribed) != 0 ? 1 : 0;
    state->moved = (slot->used & kMoved) != 0 ? 1 : 0;
  });
}
