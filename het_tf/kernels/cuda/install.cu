// HetDevInstall: puts the store's rows into the table or the call. The plan is in install_plan.h.
#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "het_tf/kernels/cuda/compose.h"
#include "het_tf/kernels/cuda/install_plan.h"
#include "het_tf/kernels/cuda/number.h"
#include "het_tf/kernels/cuda/sort.h"
#include "het_tf/kernels/cuda/table.h"
#include "het_tf/kernels/cuda/updates.h"

namespace het::dev {
namespace {

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
    view_ = KernelBatch(context_, CheckBatch(call_, batch_));
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

  // What is known of each row goes in one copy, rows that lie together in another.
  void UploadAnswers() {
    constexpr size_t kBytes = 2 * sizeof(int64_t) + sizeof(uint64_t) + sizeof(uint32_t) + sizeof(uint8_t);
    char* const host = context_.HostScratch<char>(n_ * kBytes);
    auto* keys = reinterpret_cast<int64_t*>(host);
    int64_t* bases = keys + n_;
    auto* begins = reinterpret_cast<uint64_t*>(bases + n_);
    auto* uses = reinterpret_cast<uint32_t*>(begins + n_);
    auto* flags = reinterpret_cast<uint8_t*>(uses + n_);
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
    const Dev<char> device = context_.Scratch<char>(n_ * kBytes);
    answers_.keys = Dev<int64_t>(reinterpret_cast<int64_t*>(device.raw()));
    answers_.bases = answers_.keys.Plus(n_);
    answers_.begins = Dev<uint64_t>(reinterpret_cast<uint64_t*>(answers_.bases.Plus(n_).raw()));
    answers_.uses = Dev<uint32_t>(reinterpret_cast<uint32_t*>(answers_.begins.Plus(n_).raw()));
    answers_.flags = Dev<uint8_t>(reinterpret_cast<uint8_t*>(answers_.uses.Plus(n_).raw()));
    answers_.floats = context_.Scratch<float>(floats);
    context_.CopyIn(device, host, n_ * kBytes);
    floats = 0;
    for (uint32_t a = 0; a < n_given_;) {
      const float* const rows = given_[a].rows;
      uint64_t count = 0;
      do {
        count += given_[a].n * RowFloats(given_[a].use);
        ++a;
      } while (a < n_given_ && given_[a].rows == rows + count);
      context_.CopyIn(answers_.floats.Plus(floats), rows, count);
      floats += count;
    }
  }

  // Whether some table gets so many rows that a bucket has more than a lane can order.
  bool Crowded() const {
    constexpr uint64_t kMostOfBucket = 8;
    std::vector<uint64_t> rows(batch_.n_uses);
    for (uint32_t a = 0; a < n_given_; ++a) rows[given_[a].use] += given_[a].n;
    for (uint32_t use = 0; use < batch_.n_uses; ++use) {
      if (rows[use] > kMostOfBucket * view_.uses()[use].table.buckets) return true;
    }
    return false;
  }

  void MakePlan() {
    const bool crowded = Crowded();
    plan_.n_uses = batch_.n_uses;
    plan_.order = crowded ? Numbers(context_, n_) : context_.Scratch<uint32_t>(n_);
    plan_.homes = context_.Scratch<uint64_t>(n_);
    plan_.rows = context_.Scratch<uint64_t>(n_);
    plan_.fresh = context_.Scratch<uint8_t>(n_);
    plan_.new_rows = context_.Scratch<uint32_t>(n_);
    plan_.victim_keys = context_.Scratch<uint64_t>(n_);
    plan_.victim_rows = context_.Scratch<uint64_t>(n_);
    plan_.victim_uses = context_.Scratch<uint32_t>(n_);
    plan_.counts = context_.Scratch<uint32_t>(plan_.size());
    if (crowded) {
      Dev<uint64_t> keys(reinterpret_cast<uint64_t*>(answers_.keys.raw()));
      Dev<uint64_t> sorted = context_.Scratch<uint64_t>(n_);
      context_.CopyWithin(sorted, keys, n_);
      SortPairs(context_, &sorted, &plan_.order, n_);
    }
    view_.With([&](const auto& view) {
      Launch<32>(context_, "homes of rows", (n_ + 31) / 32,
                 HomesKernel<std::decay_t<decltype(view)>>{view, answers_, plan_, n_, crowded ? 1 : 0});
    });
    int bits = 1;
    while (view_.sizes().buckets >> bits != 0) ++bits;
    SortPairs(context_, &plan_.homes, &plan_.order, n_, bits);
    view_.With([&](const auto& view) {
      Launch<8>(context_, "plan", n_, PlanKernel<std::decay_t<decltype(view)>>{view, answers_, plan_, n_});
    });
  }

  void ReadPlan() {
    counts_ = context_.HostScratch<uint32_t>(plan_.size());
    context_.CopyOut(counts_, plan_.counts, plan_.size());
    context_.Wait();
    if (counts_[plan_.duplicate()] == PlanView::kNone) return;
    std::vector<std::pair<uint32_t, int64_t>> keys;
    for (uint32_t a = 0; a < n_given_; ++a) {
      for (uint64_t i = 0; i < given_[a].n; ++i) keys.push_back({given_[a].use, given_[a].keys[i]});
    }
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    Fail(HET_DEV_INVALID, "HetDevInstall: key " + std::to_string(twice->second) + " of table '" +
                              batch_.uses[twice->first].table->name + "' has more than one row");
  }

  uint32_t CountOf(uint32_t use, PlanCount count) const { return counts_[use * kPlanCounts + count]; }

  void ReserveVictims() {
    std::vector<uint64_t> counts;
    for (uint32_t use = 0; use < batch_.n_uses; ++use) counts.push_back(CountOf(use, kVictims));
    updates_.Reserve(context_, batch_, {plan_.victim_keys, plan_.victim_uses, plan_.victim_rows}, counts);
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
    new_rows_.first = call_.rows.n;
    new_rows_.rows = call_.rows;
    if (added_ == 0) return;
    new_rows_.of_use = context_.Upload(of_use.data(), of_use.size());
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
    view_.SetCall(to);
    view_.With([&](const auto& view) {
      Launch<8>(context_, "install", n_,
                PlaceKernel<std::decay_t<decltype(view)>>{view, answers_, plan_, new_rows_});
    });
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
  KernelBatch view_;
  AnswersView answers_;
  PlanView plan_;
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
