// HetDevInstall: puts the store's rows into the table or the call. The plan is in install_plan.h, what
// executes it in install_kernels.h.
#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "het_tf/kernels/cuda/install_kernels.h"
#include "het_tf/kernels/cuda/number.h"
#include "het_tf/kernels/cuda/sort.h"
#include "het_tf/kernels/cuda/table.h"
#include "het_tf/kernels/cuda/updates.h"

namespace het::dev {
namespace {

// One HetDevInstall.
class Install {
 public:
  Install(Context& context, HetDevCall& call, const HetDevBatch& batch, const HetDevAnswer* answers,
          uint32_t n_answers)
      : context_(context), call_(call), batch_(batch) {
    for (uint32_t a = 0; a < n_answers; ++a)
      (answers[a].rows != nullptr ? given_ : confirmed_).push_back(answers[a]);
  }

  void Run(HetDevStream stream, HetDevExport* victims) {
    *victims = HetDevExport{};
    CheckAnswers();
    if (n_ == 0 && confirmed_.empty()) return;
    context_.Begin(stream);
    view_ = KernelBatch(context_, CheckBatch(call_, batch_));
    UploadConfirmed();
    if (n_ == 0) {
      Confirm();
      return context_.End();
    }
    UploadAnswers();
    MakePlan();
    ReadPlan();
    ReserveVictims();
    ReserveLeft();
    ReserveRows();
    // All memory is allocated: changes begin here.
    updates_.Copy(context_, view_);
    context_.CopyOut(left_keys_, plan_.left_keys, n_left_);
    context_.CopyOut(left_uses_, plan_.left_uses, n_left_);
    Confirm();
    Place();
    context_.Wait();
    *victims = updates_.Export();
    victims->n_left = n_left_;
    victims->left_uses = left_uses_;
    victims->left_keys = left_keys_;
    Account();
  }

 private:
  void CheckUse(const HetDevAnswer& answer) const {
    if (answer.use < batch_.n_uses) return;
    Fail(HET_DEV_INVALID,
         "an answer has use " + std::to_string(answer.use) + "; there are " + std::to_string(batch_.n_uses));
  }

  void CheckAnswers() {
    for (const HetDevAnswer& answer : confirmed_) CheckUse(answer);
    for (uint32_t a = 0; a < given_.size(); ++a) {
      const HetDevAnswer& answer = given_[a];
      const std::string name = "answer " + std::to_string(a);
      CheckUse(answer);
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
    for (const HetDevAnswer& answer : given_) {
      for (uint64_t i = 0; i < answer.n; ++i, ++to) {
        keys[to] = answer.keys[i];
        bases[to] = answer.bases[i];
        flags[to] = answer.admit[i] != 0 ? kAdmit : 0;
        if (answer.subscribed != nullptr && answer.subscribed[i] != 0) flags[to] |= kSubscribe;
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
    for (size_t a = 0; a < given_.size();) {
      const float* const rows = given_[a].rows;
      uint64_t count = 0;
      do {
        count += given_[a].n * RowFloats(given_[a].use);
        ++a;
      } while (a < given_.size() && given_[a].rows == rows + count);
      context_.CopyIn(answers_.floats.Plus(floats), rows, count);
      floats += count;
    }
  }

  void UploadConfirmed() {
    for (const HetDevAnswer& answer : confirmed_) {
      std::vector<int64_t> keys;
      for (uint64_t i = 0; i < answer.n && answer.subscribed != nullptr; ++i) {
        if (answer.subscribed[i] != 0) keys.push_back(answer.keys[i]);
      }
      if (keys.empty()) continue;
      const Dev<int64_t> to = context_.Upload(keys.data(), keys.size());
      marks_.push_back({batch_.uses[answer.use].table->view, Mark::kSubscribe, to, keys.size()});
    }
  }
  void Confirm() {
    for (const MarkKeysKernel& kernel : marks_)
      Launch<32>(context_, "mark rows", (kernel.n + 31) / 32, kernel);
  }

  // Whether some table gets so many rows that a bucket has more than a lane can order.
  bool Crowded() const {
    constexpr uint64_t kMostOfBucket = 8;
    std::vector<uint64_t> rows(batch_.n_uses);
    for (const HetDevAnswer& answer : given_) rows[answer.use] += answer.n;
    for (uint32_t use = 0; use < batch_.n_uses; ++use) {
      if (rows[use] > kMostOfBucket * view_.uses()[use].table.buckets) return true;
    }
    return false;
  }

  void MakePlan() {
    plan_.n_uses = batch_.n_uses;
    plan_.rows = context_.Scratch<uint64_t>(n_);
    plan_.fresh = context_.Scratch<uint8_t>(n_);
    plan_.new_rows = context_.Scratch<uint32_t>(n_);
    plan_.victim_keys = context_.Scratch<uint64_t>(n_);
    plan_.victim_rows = context_.Scratch<uint64_t>(n_);
    plan_.victim_uses = context_.Scratch<uint32_t>(n_);
    plan_.left_keys = context_.Scratch<int64_t>(n_);
    plan_.left_uses = context_.Scratch<uint32_t>(n_);
    plan_.counts = context_.Scratch<uint32_t>(plan_.size());
    Dev<const uint32_t> order = Numbers(context_, n_);
    if (Crowded()) {
      const Dev<const uint64_t> keys(reinterpret_cast<const uint64_t*>(answers_.keys.raw()));
      order = SortPairs(context_, keys, order, n_).values;
    }
    const Dev<uint64_t> homes = context_.Scratch<uint64_t>(n_);
    view_.With([&](const auto& view) {
      Launch<32>(context_, "homes of rows", (n_ + 31) / 32,
                 HomesKernel<std::decay_t<decltype(view)>>{view, answers_, plan_, n_, order, homes});
    });
    int bits = 1;
    while (view_.sizes().buckets >> bits != 0) ++bits;
    const Sorted sorted = SortPairs(context_, homes, order, n_, bits);
    plan_.homes = sorted.keys;
    plan_.order = sorted.values;
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
    for (const HetDevAnswer& answer : given_) {
      for (uint64_t i = 0; i < answer.n; ++i) keys.push_back({answer.use, answer.keys[i]});
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

  void ReserveLeft() {
    n_left_ = counts_[plan_.all_left()];
    left_keys_ = context_.HostScratch<int64_t>(n_left_);
    left_uses_ = context_.HostScratch<uint32_t>(n_left_);
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
  std::vector<HetDevAnswer> given_;      // with rows
  std::vector<HetDevAnswer> confirmed_;  // without
  std::vector<MarkKeysKernel> marks_;
  uint64_t n_ = 0;  // answered rows
  KernelBatch view_;
  AnswersView answers_;
  PlanView plan_;
  uint32_t* counts_ = nullptr;
  Updates updates_;
  uint64_t n_left_ = 0;
  int64_t* left_keys_ = nullptr;
  uint32_t* left_uses_ = nullptr;
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
