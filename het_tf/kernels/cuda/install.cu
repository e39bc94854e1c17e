// HetDevInstall: puts the store's rows into the table or the call. The plan is in install_plan.h.
#include <algorithm>
#include <string>
#include <vector>

#include "het_tf/kernels/cuda/compose.h"
#include "het_tf/kernels/cuda/install_plan.h"
#include "het_tf/kernels/cuda/number.h"
#include "het_tf/kernels/cuda/sort.h"
#include "het_tf/kernels/cuda/table.h"
#include "het_tf/kernels/cuda/updates.h"

namespace het::dev {
namespace {

// New rows of the call are numbered in the order of the plan; those of one use are consecutive.
struct NewRows {
  Dev<uint32_t> before;  // for each i: number of new rows before it
  Dev<uint64_t> of_use;  // [n_uses][2]: new rows of earlier uses; begin of its floats
  CallRows rows;         // with room for all of them
  uint32_t first;        // number of the first new row
};

struct VictimsKernel {
  PlanView plan;
  BatchView batch;
  Dev<uint32_t> before;
  DirtyRows to;

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t i) const {
    if (static_cast<uint32_t*>(plan.victims)[i] == 0) return;
    tile.Once([&] {
      const uint32_t at = static_cast<uint32_t*>(before)[i];
      const uint32_t use = static_cast<uint32_t>(static_cast<uint64_t*>(plan.homes)[i] >> 32);
      const uint64_t row = static_cast<uint64_t*>(plan.rows)[i];
      const Slot* slots = batch.use(use).table.slots;
      static_cast<uint64_t*>(to.keys)[at] = static_cast<uint64_t>(slots[row].key);
      static_cast<uint32_t*>(to.uses)[at] = use;
      static_cast<uint64_t*>(to.rows)[at] = row;
    });
  }
};

struct PlaceKernel {
  BatchView batch;  // with the call's rows after the install
  AnswersView answers;
  PlanView plan;
  NewRows new_rows;

  template <typename Tile>
  HET_DEV uint64_t PlaceOf(const Tile& tile, uint64_t i, uint32_t use, const TableView& table) const {
    const uint64_t row = static_cast<uint64_t*>(plan.rows)[i];
    if (row != kNowhere) return row;
    const uint32_t before = static_cast<uint32_t*>(new_rows.before)[i];
    const uint64_t* of_use = static_cast<uint64_t*>(new_rows.of_use) + uint64_t{use} * 2;
    const uint64_t number = new_rows.first + before;
    tile.Once([&] {
      static_cast<uint32_t*>(new_rows.rows.uses)[number] = use;
      static_cast<uint64_t*>(new_rows.rows.begins)[number] =
          of_use[1] + (before - of_use[0]) * FloatsInCall(table);
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
    const RowRef ref = RowAt(batch, use_number, row);
    tile.Copy(ref.value, from, table.dim);
    tile.Copy(ref.state, from + table.dim, table.state_floats);
    if (fresh) {
      tile.Once([&] {
        Slot slot = {};
        slot.key = key;
        slot.base = base;
        slot.stamp = use.stamp;
        slot.used = kOneUse;
        *ref.slot = slot;
        if ((row & kOfCall) == 0) {
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
      ref.slot->used &= ~kInvalid;
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

// One HetDevInstall.
class Install {
 public:
  Install(Context& context, HetDevCall& call, const HetDevBatch& batch, const HetDevAnswer* answers,
          uint32_t n_answers)
      : context_(context), call_(call), batch_(batch), given_(answers), n_given_(n_answers) {}

  void Run(HetDevStream stream, HetDevExport* victims) {
    *victims = HetDevExport{};
    CheckAnswers();
    if (n_ == 0) return;
    context_.Begin(stream);
    view_ = MakeBatch(context_, call_, batch_, false);
    UploadAnswers();
    MakePlan();
    ReadPlan();
    ReserveVictims();
    ReserveRows();
    // All memory is allocated: changes begin here.
    updates_.Copy(context_, view_);
    Place();
    context_.Wait();
    *victims = updates_.Export();
    Account();
  }

 private:
  void CheckAnswers() {
    for (uint32_t a = 0; a < n_given_; ++a) {
      const HetDevAnswer& answer = given_[a];
      const std::string name = "answer " + std::to_string(a);
      if (answer.use >= batch_.n_uses) {
        Fail(HET_DEV_INVALID,
             name + ": use " + std::to_string(answer.use) + "; there are " + std::to_string(batch_.n_uses));
      }
      if (answer.n > kEmpty - 1 - n_) Fail(HET_DEV_INVALID, name + ": more than 2^32 - 2 rows in one call");
      for (uint64_t i = 0; i < answer.n; ++i) {
        if (answer.bases[i] < 0) {
          Fail(HET_DEV_INVALID, name + ": key " + std::to_string(answer.keys[i]) + " has base " +
                                    std::to_string(answer.bases[i]) + "; a clock is not negative");
        }
      }
      n_ += answer.n;
    }
  }

  uint32_t RowFloats(uint32_t use) const { return batch_.uses[use].table->view.row_floats; }
  uint64_t CallStride(uint32_t use) const { return FloatsInCall(batch_.uses[use].table->view); }

  void UploadAnswers() {
    int64_t* keys = context_.HostScratch<int64_t>(n_);
    int64_t* bases = context_.HostScratch<int64_t>(n_);
    uint8_t* flags = context_.HostScratch<uint8_t>(n_);
    uint32_t* uses = context_.HostScratch<uint32_t>(n_);
    uint64_t* begins = context_.HostScratch<uint64_t>(n_);
    uint64_t floats = 0;
    uint64_t to = 0;
    for (uint32_t a = 0; a < n_given_; ++a) {
      const HetDevAnswer& answer = given_[a];
      for (uint64_t i = 0; i < answer.n; ++i, ++to) {
        keys[to] = answer.keys[i];
        bases[to] = answer.bases[i];
        flags[to] = answer.admit[i] != 0 ? kAdmit : 0;
        uses[to] = answer.use;
        begins[to] = floats;
        floats += RowFloats(answer.use);
      }
    }
    answers_.keys = context_.Scratch<int64_t>(n_);
    answers_.bases = context_.Scratch<int64_t>(n_);
    answers_.flags = context_.Scratch<uint8_t>(n_);
    answers_.uses = context_.Scratch<uint32_t>(n_);
    answers_.begins = context_.Scratch<uint64_t>(n_);
    answers_.floats = context_.Scratch<float>(floats);
    context_.CopyIn(answers_.keys, keys, n_);
    context_.CopyIn(answers_.bases, bases, n_);
    context_.CopyIn(answers_.flags, flags, n_);
    context_.CopyIn(answers_.uses, uses, n_);
    context_.CopyIn(answers_.begins, begins, n_);
    floats = 0;
    for (uint32_t a = 0; a < n_given_; ++a) {
      const uint64_t count = given_[a].n * RowFloats(given_[a].use);
      context_.CopyIn(answers_.floats.Plus(floats), given_[a].rows, count);
      floats += count;
    }
  }

  void MakePlan() {
    // Sort by key, then by home; both sorts are stable.
    plan_.order = Numbers(context_, n_);
    Dev<uint64_t> sorted = context_.Scratch<uint64_t>(n_);
    context_.CopyWithin(sorted, Dev<uint64_t>(reinterpret_cast<uint64_t*>(answers_.keys.raw())), n_);
    SortPairs(context_, &sorted, &plan_.order, n_);
    Launch<4>(context_, "homes of rows", n_, HomesKernel{view_, answers_, plan_.order, sorted});
    int bits = 33;
    while (batch_.n_uses >> (bits - 32) != 0) ++bits;
    SortPairs(context_, &sorted, &plan_.order, n_, bits);
    plan_.homes = sorted;
    plan_.rows = context_.Scratch<uint64_t>(n_);
    plan_.fresh = context_.Scratch<uint8_t>(n_);
    plan_.new_rows = context_.Scratch<uint32_t>(n_ + 1);
    plan_.victims = context_.Scratch<uint32_t>(n_ + 1);
    plan_.counts = context_.Scratch<uint32_t>(size_t{kPlanCounts} * batch_.n_uses);
    plan_.duplicate = context_.Scratch<uint32_t>(1);
    context_.Fill(plan_.counts, 0, size_t{kPlanCounts} * batch_.n_uses);
    context_.Fill(plan_.duplicate, 0xff, 1);
    context_.Fill(plan_.new_rows.Plus(n_), 0, 1);
    context_.Fill(plan_.victims.Plus(n_), 0, 1);
    Launch<8>(context_, "plan", n_, PlanKernel{view_, answers_, plan_, n_});
    new_before_ = context_.Scratch<uint32_t>(n_ + 1);
    victims_before_ = context_.Scratch<uint32_t>(n_ + 1);
    RunningSums(context_, plan_.new_rows, new_before_, n_);
    RunningSums(context_, plan_.victims, victims_before_, n_);
  }

  void ReadPlan() {
    counts_ = context_.HostScratch<uint32_t>(size_t{kPlanCounts} * batch_.n_uses);
    uint32_t* duplicate = context_.HostScratch<uint32_t>(1);
    context_.CopyOut(counts_, plan_.counts, size_t{kPlanCounts} * batch_.n_uses);
    context_.CopyOut(duplicate, plan_.duplicate, 1);
    context_.Wait();
    if (*duplicate == kEmpty) return;
    context_.CopyOut(duplicate, plan_.order.Plus(*duplicate), 1);
    context_.Wait();
    uint64_t at = *duplicate;
    uint32_t a = 0;
    while (at >= given_[a].n) at -= given_[a++].n;
    Fail(HET_DEV_INVALID, "HetDevInstall: key " + std::to_string(given_[a].keys[at]) + " of table '" +
                              batch_.uses[given_[a].use].table->name + "' has more than one row");
  }

  uint32_t CountOf(uint32_t use, PlanCount count) const { return counts_[use * kPlanCounts + count]; }

  void ReserveVictims() {
    std::vector<uint64_t> counts;
    uint64_t n = 0;
    for (uint32_t use = 0; use < batch_.n_uses; ++use) {
      counts.push_back(CountOf(use, kVictims));
      n += counts.back();
    }
    const DirtyRows rows = {context_.Scratch<uint64_t>(n), context_.Scratch<uint32_t>(n),
                            context_.Scratch<uint64_t>(n)};
    if (n > 0) Launch<4>(context_, "victims", n_, VictimsKernel{plan_, view_, victims_before_, rows});
    updates_.Reserve(context_, batch_, view_, rows, counts);
  }

  // Allocates room for new rows of the call.
  void ReserveRows() {
    std::vector<uint64_t> of_use;
    uint64_t floats = call_.floats_used;
    for (uint32_t use = 0; use < batch_.n_uses; ++use) {
      of_use.push_back(added_);
      of_use.push_back(floats);
      added_ += CountOf(use, kNewRows);
      floats += CountOf(use, kNewRows) * CallStride(use);
    }
    new_rows_.before = new_before_;
    new_rows_.of_use = context_.Upload(of_use.data(), of_use.size());
    new_rows_.first = call_.rows.n;
    new_rows_.rows = call_.rows;
    if (added_ == 0) return;
    if (call_.rows.n + added_ > kEmpty / 4) {
      Fail(HET_DEV_INVALID,
           "HetDevInstall: " + std::to_string(call_.rows.n + added_) + " rows stay with the call");
    }
    GrowCall(call_.rows.n + added_, floats);
  }

  void GrowCall(uint64_t rows, uint64_t floats) {
    if (floats * sizeof(float) > call_.floats.bytes()) {
      floats_block_ = context_.Allocate((floats + floats / 2) * sizeof(float), "rows of a call");
      new_rows_.rows.floats = floats_block_.as<float>();
    }
    if (rows > call_.capacity) {
      capacity_ = std::max<uint64_t>(64, rows + rows / 2);
      uint64_t entries = 128;
      while (entries < 2 * capacity_) entries *= 2;
      const uint64_t bytes = sizeof(Slot) + sizeof(uint64_t) + sizeof(uint32_t);
      memory_block_ = context_.Allocate(capacity_ * bytes + entries * sizeof(uint32_t), "rows of a call");
      CallRows& to = new_rows_.rows;
      to.slots = memory_block_.as<Slot>();
      to.begins = Dev<uint64_t>(reinterpret_cast<uint64_t*>(to.slots.Plus(capacity_).raw()));
      to.uses = Dev<uint32_t>(reinterpret_cast<uint32_t*>(to.begins.Plus(capacity_).raw()));
      to.index = to.uses.Plus(capacity_);
      to.mask = static_cast<uint32_t>(entries - 1);
    }
    floats_ = floats;
  }

  void Place() {
    const CallRows& old = call_.rows;
    const CallRows& to = new_rows_.rows;
    if (floats_block_.bytes() > 0) context_.CopyWithin(to.floats, old.floats, call_.floats_used);
    if (memory_block_.bytes() > 0) {
      context_.CopyWithin(to.slots, old.slots, old.n);
      context_.CopyWithin(to.begins, old.begins, old.n);
      context_.CopyWithin(to.uses, old.uses, old.n);
    }
    view_.call = to;
    Launch<8>(context_, "install", n_, PlaceKernel{view_, answers_, plan_, new_rows_});
    if (added_ == 0) return;
    call_.rows = to;
    call_.rows.n = static_cast<uint32_t>(old.n + added_);
    context_.Fill(to.index, 0xff, uint64_t{to.mask} + 1);
    Launch<4>(context_, "index of the call", call_.rows.n, IndexKernel{call_.rows});
    call_.floats_used = floats_;
    if (memory_block_.bytes() > 0) {
      std::swap(call_.memory, memory_block_);  // the old blocks live as long as this object
      call_.capacity = capacity_;
    }
    if (floats_block_.bytes() > 0) std::swap(call_.floats, floats_block_);
  }

  void Account() {
    bool more_work = false;
    for (uint32_t use = 0; use < batch_.n_uses; ++use) {
      HetDevTable* table = batch_.uses[use].table;
      table->evicted_below = std::max(table->evicted_below, batch_.uses[use].pinned_from);
      table->inserts += CountOf(use, kInserts);
      table->evictions += CountOf(use, kEvictions);
      more_work |= CountFirstUses(context_, table, CountOf(use, kInserts));
    }
    if (more_work) context_.End();
  }

  Context& context_;
  HetDevCall& call_;
  const HetDevBatch& batch_;
  const HetDevAnswer* const given_;
  const uint32_t n_given_;
  uint64_t n_ = 0;  // answered rows
  BatchView view_;
  AnswersView answers_;
  PlanView plan_;
  Dev<uint32_t> new_before_;
  Dev<uint32_t> victims_before_;
  uint32_t* counts_ = nullptr;
  Updates updates_;
  NewRows new_rows_;
  uint64_t added_ = 0;
  uint64_t floats_ = 0;
  uint64_t capacity_ = 0;
  Block memory_block_;
  Block floats_block_;
};

}  // namespace
}  // namespace het::dev

using namespace het::dev;  // NOLINT: the functions of the C ABI

int HetDevInstall(HetDevContext* context, HetDevCall* call, const HetDevBatch* batch,
                  const HetDevAnswer* answers, uint32_t n_answers, HetDevStream stream,
                  HetDevExport* victims) {
  return Guard([&] { Install(*context, *call, *batch, answers, n_answers).Run(stream, victims); });
}
