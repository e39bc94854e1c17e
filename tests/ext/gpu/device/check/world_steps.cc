// Steps up to their rows: lookup, install, gather.
#include <algorithm>
#include <map>
#include <set>

#include "tests/ext/gpu/device/check/world.h"

namespace het::device_check {
namespace {

using KeysOfUses = std::vector<std::set<int64_t>>;

KeysOfUses Keys(const Step& step) {
  KeysOfUses keys(step.uses.size());
  for (const Feature& feature : step.features) {
    for (const int64_t id : feature.ids) {
      if (!feature.has_padding || id != feature.padding_id) keys[feature.use].insert(id);
    }
  }
  return keys;
}

}  // namespace

std::vector<size_t> World::Outstanding() const {
  std::vector<size_t> slots;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].outstanding) slots.push_back(slot);
  }
  return slots;
}

size_t World::FreeSlot() {
  const std::vector<size_t> outstanding = Outstanding();
  if (outstanding.size() >= most_outstanding_) Finish(random_.Pick(outstanding));
  for (size_t slot = 0;; ++slot) {
    if (!slots_[slot].outstanding) return slot;
  }
}

void World::Repin(Step* step) const {
  if (step->uses.empty()) return;
  std::vector<uint64_t> stamps;
  for (const Slot& slot : slots_) {
    if (slot.outstanding) stamps.push_back(slot.step.uses[0].stamp);
  }
  std::sort(stamps.rbegin(), stamps.rend());
  uint64_t pinned = step->uses[0].stamp;
  for (size_t i = 0; i < std::min<size_t>(stamps.size(), 8); ++i) pinned = std::min(pinned, stamps[i]);
  for (Use& use : step->uses) use.pinned_from = pinned;
}

void World::TrainLookup() {
  const size_t number = FreeSlot();
  Slot& slot = slots_[number];
  slot = Slot();
  slot.step = DrawStep();
  stamp_ += random_.Chance(0.9) ? 1 : 3;
  for (Use& use : slot.step.uses) {
    Table& table = tables_[use.table];
    use.stamp = stamp_;
    if (!table.subscribes) continue;
    // The answers to the lookup before have come by now, or not.
    if (random_.Chance(0.5)) Notify(use.table);
    use.trusted = table.answered;
    std::fill(table.answered.begin(), table.answered.end(), 0);
  }
  slot.outstanding = true;
  slot.late = random_.Chance(0.5);
  Repin(&slot.step);
  const Reply looked = LookupBoth(number, true);
  for (const Use& use : slot.step.uses) {
    if (tables_[use.table].subscribes && random_.Chance(0.5)) Notify(use.table);
  }
  // Other steps may run between a lookup and its answers. Its rows are pinned while it is among the last
  // eight.
  const std::vector<size_t> outstanding = Outstanding();
  const size_t other = random_.Pick(outstanding);
  if (outstanding.size() <= 8 && other != number && random_.Chance(0.2)) {
    Finish(other);
    slot.mixed = true;
  }
  InstallBoth(number, looked.wanted);
  // Without it the device may still be copying the rows of the lookup when the next call comes.
  if (!looked.wanted.empty() || random_.Chance(0.5)) GatherBoth(number, looked.wanted);
  if (random_.Chance(0.05)) {
    const Reply again = LookupBoth(number, false);
    InstallBoth(number, again.wanted);
    GatherBoth(number, again.wanted);
  }
}

void World::ReadOnly() {
  const size_t number = FreeSlot();
  Slot& slot = slots_[number];
  slot = Slot();
  slot.step = DrawStep();
  for (Use& use : slot.step.uses) use.stamp = stamp_;
  Repin(&slot.step);
  const Reply looked = LookupBoth(number, false);
  InstallBoth(number, looked.wanted);
  GatherBoth(number, looked.wanted);
  Abandon(number);
}

void World::Abandon(size_t slot) {
  Note("call " + std::to_string(slot) + " is reset");
  tested_.Reset(slot);
  reference_.Reset(slot);
  slots_[slot] = Slot();
}

Reply World::LookupBoth(size_t number, bool training) {
  const Step& step = slots_[number].step;
  std::string line =
      std::string(training ? "training" : "read-only") + " lookup in call " + std::to_string(number) + ":";
  for (const Use& use : step.uses) {
    line += " [table " + std::to_string(use.table) + (use.check ? " check" : "") + " stamp " +
            std::to_string(use.stamp) + " pinned " + std::to_string(use.pinned_from) + "]";
  }
  for (const Feature& f : step.features)
    line += " " + std::to_string(f.ids.size()) + " ids of " + std::to_string(f.use);
  Note(line);
  tested_.BringIds(number, step);
  reference_.BringIds(number, step);
  slots_[number].has_ids = true;
  Reply tested, reference;
  Both(
      "Lookup", [&](Side* side) { return side->Lookup(number, training); }, &tested, &reference);
  Expect(tested.code == HET_DEV_OK, "Lookup answers " + std::to_string(tested.code) + ": " + tested.error);
  ExpectSameWanted(tested, reference);
  const KeysOfUses keys = Keys(step);
  KeysOfUses wanted(step.uses.size());
  for (const Wanted& one : tested.wanted) {
    Expect(one.use < keys.size() && keys[one.use].count(one.key) == 1,
           "a key is wanted that was not looked up");
    Expect(wanted[one.use].insert(one.key).second, "a key is wanted twice");
  }
  for (size_t u = 0; u < keys.size(); ++u) {
    Expect(tested.reads.size() == keys.size() && tested.reads[u] == keys[u].size(),
           "reads are not the different keys");
    for (const int64_t key : keys[u]) {
      if (step.uses[u].check && wanted[u].count(key) == 0) CheckTrusted(step.uses[u], key);
    }
    tally_->keys += keys[u].size();
  }
  ++tally_->lookups;
  tally_->wanted += tested.wanted.size();
  if (!slots_[number].late) CheckRows(number, tested.wanted);
  return tested;
}

void World::InstallBoth(size_t number, const std::vector<Wanted>& wanted) {
  Slot& slot = slots_[number];
  if (random_.Chance(0.02)) RefuseBadAnswers(number);
  // Absent rows are always answered, and others if they are too old.
  std::map<uint32_t, std::vector<Wanted>> of_use;
  std::map<uint32_t, Answer> confirmed;
  for (const Wanted& one : wanted) {
    const Table& table = tables_[slot.step.uses[one.use].table];
    const int64_t clock = table.store->Read(one.key).clock;
    const bool old = one.base < 0 || clock - one.base > table.pull_bound;
    if (old || random_.Chance(0.05)) {
      of_use[one.use].push_back(one);
      continue;
    }
    Answer& answer = confirmed.try_emplace(one.use, Answer{one.use, {}, {}, {}, {}, {}}).first->second;
    answer.keys.push_back(one.key);
    answer.subscribed.push_back(Subscribes(number, one, one.base));
  }
  // An inference pins nothing: an entering row could evict one that must still be gathered.
  const double admit = !slot.outstanding ? 0 : random_.Chance(0.2) ? random_.Unit() : 1;
  std::vector<Answer> answers;
  for (auto& [use, all] : of_use) {
    for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random_.Below(i)]);
    Table& table = tables_[slot.step.uses[use].table];
    for (size_t i = 0; i < all.size(); ++i) {
      if (i == 0 || random_.Chance(0.02)) answers.push_back({use, {}, {}, {}, {}, {}});
      const ToyStore::Row& row = table.store->Read(all[i].key);
      Answer& answer = answers.back();
      answer.keys.push_back(all[i].key);
      answer.bases.push_back(row.clock);
      answer.admit.push_back(random_.Chance(admit));
      answer.subscribed.push_back(Subscribes(number, all[i], row.clock));
      answer.rows.insert(answer.rows.end(), row.floats.begin(), row.floats.end());
      table.ledger->Answered(all[i].key);
    }
  }
  for (auto& [use, answer] : confirmed) {
    const size_t at = random_.Below(answers.size() + 1);
    answers.insert(answers.begin() + static_cast<std::ptrdiff_t>(at), std::move(answer));
  }
  if (answers.size() > 1 && random_.Chance(0.2)) {  // in two portions
    const auto middle = answers.begin() + static_cast<std::ptrdiff_t>(1 + random_.Below(answers.size() - 1));
    InstallOnce(number, {answers.begin(), middle});
    answers.erase(answers.begin(), middle);
  }
  if (!answers.empty() || random_.Chance(0.1)) InstallOnce(number, answers);
}

bool World::Subscribes(size_t number, const Wanted& row, int64_t base) {
  Table& table = tables_[slots_[number].step.uses[row.use].table];
  if (!table.subscribes || !slots_[number].outstanding || random_.Chance(0.05)) return false;
  table.store->Subscribe(row.key, base);
  return true;
}

void World::InstallOnce(size_t number, const std::vector<Answer>& answers) {
  Slot& slot = slots_[number];
  size_t rows = 0;
  for (const Answer& answer : answers) rows += answer.keys.size();
  Note("install " + std::to_string(rows) + " rows in call " + std::to_string(number));
  Repin(&slot.step);
  Reply tested, reference;
  Both(
      "Install", [&](Side* side) { return side->Install(number, answers); }, &tested, &reference);
  Expect(tested.code == HET_DEV_OK, "Install answers " + std::to_string(tested.code) + ": " + tested.error);
  ExpectSameUpdates(tested, reference, "victims");
  for (const Updates& updates : tested.updates) tally_->victims += updates.keys.size();
  DeliverAll(slot.step, tested, "a victim");
  for (const auto& [use, key] : tested.left) {
    const Table& table = tables_[slot.step.uses[use].table];
    Expect(table.store->Unsubscribe(key),
           table.name + ": the store did not know of a subscribed row that left");
  }
  tally_->left += tested.left.size();
  for (const Answer& answer : answers) {
    Ledger& ledger = *tables_[slot.step.uses[answer.use].table].ledger;
    for (size_t i = 0; i < answer.bases.size(); ++i) {
      const int64_t key = answer.keys[i];
      ledger.At(key).base = answer.bases[i];
      if (reference_.Inspect(slot.step.uses[answer.use].table, key).row.found) continue;
      slot.own_rows = true;
      ++tally_->own_rows;
    }
  }
  AgeOthers(number);
}

void World::RefuseBadAnswers(size_t number) {
  const Step& step = slots_[number].step;
  const uint32_t use = 0;
  const size_t width = tables_[step.uses[use].table].config.row_floats;
  const Answer twice = {use, {5, 5}, {1, 1}, {1, 1}, std::vector<float>(2 * width), {}};
  const Answer negative = {use, {5}, {-1}, {1}, std::vector<float>(width), {}};
  for (const Answer& bad : {twice, negative}) {
    Reply tested, reference;
    Both(
        "Install of a bad answer", [&](Side* side) { return side->Install(number, {bad}); }, &tested,
        &reference);
    Expect(tested.code == HET_DEV_INVALID, "a bad answer is answered " + std::to_string(tested.code));
    ++tally_->refused;
  }
  ExpectUntouched();
}

void World::GatherBoth(size_t number, const std::vector<Wanted>& wanted) {
  Reply tested, reference;
  Both(
      "Gather", [&](Side* side) { return side->Gather(number); }, &tested, &reference);
  Expect(tested.code == HET_DEV_OK, "Gather answers " + std::to_string(tested.code) + ": " + tested.error +
                                        " (" + std::to_string(wanted.size()) + " keys were wanted)");
  if (!slots_[number].late) CheckRows(number, {});
}

void World::CheckRows(size_t number, const std::vector<Wanted>& left_out) {
  const Step& step = slots_[number].step;
  std::set<std::pair<uint32_t, int64_t>> absent;
  for (const Wanted& one : left_out) absent.insert({one.use, one.key});
  for (size_t f = 0; f < step.features.size(); ++f) {
    const Feature& feature = step.features[f];
    if (!feature.wants_rows) continue;
    Table& table = tables_[step.uses[feature.use].table];
    const size_t dim = table.config.dim;
    const std::vector<float> rows = tested_.Rows(number, f), expected = reference_.Rows(number, f);
    for (size_t i = 0; i < feature.ids.size(); ++i) {
      const int64_t key = feature.ids[i];
      const bool padding = feature.has_padding && key == feature.padding_id;
      if (!padding && absent.count({feature.use, key}) != 0) continue;
      ToyStore::Row initial;
      Held* held = nullptr;
      if (table.exact && !padding && !slots_[number].mixed) {
        initial = table.store->Initial(key);
        held = &table.ledger->At(key);
      }
      for (size_t j = i * dim; j < (i + 1) * dim; ++j) {
        const auto where = [&] {
          return "feature " + std::to_string(f) + " (" + table.name + "), id " + std::to_string(key) +
                 " at " + std::to_string(i) + ", float " + std::to_string(j - i * dim);
        };
        if (!SameFloat(rows[j], expected[j])) {
          throw Different("rows: " + where() + " is " + std::to_string(rows[j]) + ", the reference has " +
                          std::to_string(expected[j]));
        }
        if (padding) Expect(rows[j] == 0, "padding reads something: " + where());
        if (held == nullptr) continue;
        const size_t k = j - i * dim;
        const float known = initial.floats[k] + held->own[k] + held->seen[k];
        if (rows[j] != known) {
          throw Different("rows: " + where() + " is " + std::to_string(rows[j]) + ", and by the ledger " +
                          std::to_string(known));
        }
      }
    }
  }
}

void World::AgeOthers(size_t number) {
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (slot != number && slots_[slot].own_rows) slots_[slot].stale = true;
  }
}

}  // namespace het::device_check
