// Steps from their gradients: sum and tick.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "het_tf/core/wire/bound.h"
#include "tests/ext/gpu/device/check/world.h"

namespace het::device_check {

void World::Finish(size_t slot) {
  if (!slots_[slot].outstanding) return;
  if (slots_[slot].late) {
    slots_[slot].mixed = true;  // they are of the lookup, and the ledger has gone on
    CheckRows(slot, {});
  }
  SumAndTick(slot);
  Abandon(slot);
}

void World::FinishUnseen() {
  const size_t number = FreeSlot();
  Slot& slot = slots_[number];
  slot = Slot();
  slot.step = DrawStep();
  ++stamp_;
  for (Use& use : slot.step.uses) use.stamp = stamp_;
  slot.outstanding = true;
  Note("a step without a lookup");
  Finish(number);
}

bool World::SumBoth(size_t number, float scale, const std::vector<uint8_t>* active, Reply* summed) {
  Slot& slot = slots_[number];
  const uint8_t* flags = active == nullptr ? nullptr : active->data();
  // Rows that no lookup has pinned may be evicted when other rows of the step enter, and are then wanted.
  // Installed rows stay, so each of a bucket's 32 rows is evicted at most once, in consecutive turns.
  constexpr int kMostTurns = 1 + 32;
  for (int turn = 0; turn <= kMostTurns; ++turn) {
    Repin(&slot.step);
    Reply reference;
    Both(
        "Sum", [&](Side* side) { return side->Sum(number, scale, flags); }, summed, &reference);
    Expect(summed->code == HET_DEV_OK, "Sum answers " + std::to_string(summed->code) + ": " + summed->error);
    ExpectSameWanted(*summed, reference);
    if (summed->wanted.empty()) {
      ExpectSameSums(*summed, reference);
      return true;
    }
    tally_->fetched_for_sum += summed->wanted.size();
    for (const Wanted& one : summed->wanted) {
      Expect(one.base == HET_DEV_NO_BASE, "Sum wants a row that is here");
    }
    InstallBoth(number, summed->wanted);
  }
  return false;
}

void World::SumAndTick(size_t number) {
  Slot& slot = slots_[number];
  for (Use& use : slot.step.uses) {
    Table& table = tables_[use.table];
    if (table.config.keep_updates && random_.Chance(0.03))
      table.push_bound = static_cast<int64_t>(random_.Below(4));
    if (random_.Chance(0.03)) table.push_every = random_.Pick(kPushEvery);
    use.push_bound = table.push_bound;
    use.push_every = table.push_every;
  }
  bool broken = false;
  DrawGradients(&slot.step, &broken);
  if (slot.stale || random_.Chance(0.1)) {
    tested_.Reset(number);
    reference_.Reset(number);
    slot.stale = slot.own_rows = slot.has_ids = false;
  }
  Repin(&slot.step);
  const bool ids = !slot.has_ids || random_.Chance(0.5);
  tested_.BringGradients(number, slot.step, ids);
  reference_.BringGradients(number, slot.step, ids);
  const float scale = random_.Pick(std::vector<float>{1, 1, 1, 0.5f, 2, 0.125f});
  std::vector<uint8_t> flags;
  for (size_t f = 0; f < slot.step.features.size(); ++f) flags.push_back(random_.Chance(0.8));
  const std::vector<uint8_t>* active = !flags.empty() && random_.Chance(0.3) ? &flags : nullptr;
  Note("sum in call " + std::to_string(number) + (active != nullptr ? ", active features given" : "") +
       (broken ? ", a gradient is not finite" : ""));
  Reply summed;
  Expect(SumBoth(number, scale, active, &summed), "Sum wants rows again and again");
  if (summed.non_finite) {
    ++tally_->non_finite;
    Expect(broken || wild_, "Sum finds NaN or Inf where there is none");
    ExpectUntouched();
    return;
  }
  Expect(!broken || active != nullptr, "Sum does not find NaN or Inf");
  TickBoth(number, scale, active, summed);
  if (random_.Chance(0.03)) {  // a sum is ticked once
    Reply tested, reference;
    Both(
        "A second Tick", [&](Side* side) { return side->Tick(number); }, &tested, &reference);
    Expect(tested.code == HET_DEV_INVALID, "a second Tick answers " + std::to_string(tested.code));
    ++tally_->refused;
    ExpectUntouched();
  }
}

void World::TickBoth(size_t number, float scale, const std::vector<uint8_t>* active, const Reply& summed) {
  Slot& slot = slots_[number];
  const Step& step = slot.step;
  // Computes every key's gradient.
  std::vector<std::map<int64_t, std::vector<float>>> sums(step.uses.size());
  for (size_t f = 0; f < step.features.size(); ++f) {
    const Feature& feature = step.features[f];
    const auto& g = feature.gradients;
    const bool counts = active != nullptr ? (*active)[f] != 0
                                          : std::any_of(g.begin(), g.end(), [](float x) { return x != 0; });
    Expect(f < summed.active.size() && summed.active[f] == counts,
           "active is wrong for feature " + std::to_string(f));
    if (!counts) continue;
    const size_t dim = tables_[step.uses[feature.use].table].config.dim;
    for (size_t i = 0; i < feature.ids.size(); ++i) {
      if (feature.has_padding && feature.ids[i] == feature.padding_id) continue;
      std::vector<float>& sum = sums[feature.use][feature.ids[i]];
      sum.resize(dim);
      for (size_t j = 0; j < dim; ++j) sum[j] += g[i * dim + j];
    }
  }
  size_t uniques = 0;
  for (const auto& of_use : sums) uniques += of_use.size();
  Expect(summed.ticks.size() == sums.size(), "Sum gives no ticks of uses");
  for (size_t u = 0; u < sums.size(); ++u) {
    Expect(summed.ticks[u] == sums[u].size(), "Sum: ticks of use " + std::to_string(u) + " are wrong");
  }
  Expect(summed.uniques == uniques, "Sum: uniques is " + std::to_string(summed.uniques) + ", and there are " +
                                        std::to_string(uniques) + " keys");

  Note("tick in call " + std::to_string(number) + ": " + std::to_string(uniques) + " keys, due " +
       std::to_string(summed.due));
  const uint8_t* flags = active == nullptr ? nullptr : active->data();
  std::map<const Side*, uint64_t> looks = {{&tested_, looks_}, {&reference_, looks_}};
  Reply tested, reference;
  Both(
      "Tick",
      [&](Side* side) {
        // Looking at rows after a failed allocation has invalidated the sums.
        if (looks[side] != looks_) side->Sum(number, scale, flags);
        looks[side] = looks_;
        return side->Tick(number);
      },
      &tested, &reference);
  Expect(tested.code == HET_DEV_OK, "Tick answers " + std::to_string(tested.code) + ": " + tested.error);
  ExpectSameUpdates(tested, reference, "due");
  tally_->ticks += uniques;
  tally_->due += summed.due;
  for (size_t u = 0; u < sums.size(); ++u) {
    Ledger& ledger = *tables_[step.uses[u].table].ledger;
    for (auto& [key, sum] : sums[u]) {
      for (float& x : sum) x *= -scale;
      ledger.Ticked(key, sum.data());
    }
  }
  uint64_t due = 0;
  for (const Updates& updates : tested.updates) {
    const Use& use = step.uses[updates.use];
    due += updates.keys.size();
    for (size_t i = 0; i < updates.keys.size(); ++i) {
      tally_->due_by_age += updates.ticks[i] <= use.push_bound &&
                            updates.ticks[i] > Bound(use.push_bound, use.push_every).Of(updates.clocks[i]);
    }
  }
  Expect(due == summed.due, "Sum has announced " + std::to_string(summed.due) + " due updates, Tick gives " +
                                std::to_string(due));
  DeliverAll(step, tested, "a due update");
  for (size_t u = 0; u < sums.size(); ++u) {
    Ledger& ledger = *tables_[step.uses[u].table].ledger;
    const Use& use = step.uses[u];
    for (const auto& [key, sum] : sums[u]) {
      const Held& held = ledger.At(key);
      Expect(held.ticks <= Bound(use.push_bound, use.push_every).Of(held.base + held.ticks),
             "after the tick key " + std::to_string(key) + " has more ticks than its push bound");
      tally_->held_back_by_age += use.push_every != 0 && held.ticks > 0;
    }
  }
  AgeOthers(number);
}

}  // namespace het::device_check
