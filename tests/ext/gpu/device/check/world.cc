// The schedule, and operations on tables between steps.
#include "tests/ext/gpu/device/check/world.h"

#include <algorithm>
#include <utility>

#include "het_tf/core/base/hash.h"
#include "het_tf/core/wire/layout.h"

namespace het::device_check {

void World::Run() {
  using Operation = void (World::*)();
  const std::vector<std::pair<uint64_t, Operation>> operations = {
      {38, &World::TrainLookup}, {8, &World::ReadOnly},    {3, &World::FinishUnseen},
      {5, &World::Take},         {2, &World::Forget},      {4, &World::ForgetKeys},
      {8, &World::OthersPush},   {3, &World::CheckStates}, {2, &World::EndSubscriptions},
  };
  for (uint64_t i = 0; i < options_.operations; ++i) {
    uint64_t at = random_.Below(100);
    bool done = false;
    for (const auto& [weight, operation] : operations) {
      if (at < weight) {
        (this->*operation)();
        done = true;
        break;
      }
      at -= weight;
    }
    if (done) continue;
    if (at < 2) {
      Abandon(random_.Below(slots_.size()));
    } else if (at < 5) {
      LookAtRows(10);
    } else {
      const std::vector<size_t> outstanding = Outstanding();
      if (!outstanding.empty()) Finish(random_.Pick(outstanding));
    }
  }
  for (size_t slot = 0; slot < slots_.size(); ++slot) Finish(slot);
  CheckStates();
  LookAtRows(SIZE_MAX);
  for (size_t table = 0; table < tables_.size(); ++table) TakeAll(table);
  CheckStates();
  LookAtRows(SIZE_MAX);
}

void World::Take() {
  const size_t number = random_.Below(tables_.size());
  const uint64_t most = random_.Chance(0.2) ? UINT64_MAX : 1 + random_.Below(50);
  Note("take " + std::to_string(most) + " of table " + std::to_string(number));
  const uint64_t dirty = tables_[number].ledger->Dirty();
  Reply tested, reference;
  Both(
      "Take", [&](Side* side) { return side->Take(number, most); }, &tested, &reference);
  Expect(tested.code == HET_DEV_OK, "Take answers " + std::to_string(tested.code) + ": " + tested.error);
  ExpectSameUpdates(tested, reference, "taken");
  uint64_t taken = 0;
  for (const Updates& updates : tested.updates) {
    taken += updates.keys.size();
    Deliver(number, updates, "a taken update");
  }
  tally_->taken += taken;
  Expect(taken == std::min(most, dirty), "Take gives " + std::to_string(taken) + " of " +
                                             std::to_string(dirty) + " dirty rows; asked for " +
                                             std::to_string(most));
}

void World::TakeAll(size_t number) {
  Table& table = tables_[number];
  for (;;) {
    const uint64_t most = 1 + random_.Below(200);
    Reply tested, reference;
    Both(
        "Take", [&](Side* side) { return side->Take(number, most); }, &tested, &reference);
    ExpectSameUpdates(tested, reference, "taken at the end");
    if (tested.updates.empty() || tested.updates[0].keys.empty()) break;
    Deliver(number, tested.updates[0], "an update taken at the end");
  }
  Expect(table.ledger->Dirty() == 0, table.name + ": updates are missing at the end");
  if (!table.exact) return;
  for (const int64_t key : table.pool) {
    const ToyStore::Row initial = table.store->Initial(key), &row = table.store->Read(key);
    const Held& held = table.ledger->At(key);
    for (uint32_t i = 0; i < table.config.dim; ++i) {
      Expect(row.floats[i] == initial.floats[i] + held.own[i] + held.foreign[i],
             table.name + ": at the end the store's row of key " + std::to_string(key) + " is wrong");
    }
  }
}

void World::Forget() {
  const size_t number = random_.Below(tables_.size());
  Table& table = tables_[number];
  const int what = static_cast<int>(random_.Below(5));
  const uint32_t partitions = table.config.partitions;
  const Layout layout(partitions, table.config.hash_seed);
  std::vector<uint8_t> chosen(partitions);
  for (uint8_t& one : chosen) one = random_.Chance(0.5);
  const bool all = random_.Chance(0.3);
  Note("forget " + std::to_string(what) + " in table " + std::to_string(number) + (all ? " everywhere" : ""));
  Reply tested, reference;
  Both(
      "Forget", [&](Side* side) { return side->Forget(number, what, all ? nullptr : &chosen); }, &tested,
      &reference);
  Expect(tested.code == HET_DEV_OK, "Forget answers " + std::to_string(tested.code) + ": " + tested.error);
  uint64_t discarded = 0;
  for (const int64_t key : table.ledger->DirtyKeys()) {
    const uint32_t partition = layout.OfKey(table.config.table, key);
    if (what == HET_DEV_DROP && (all || chosen[partition])) discarded += table.ledger->Discarded(key);
  }
  Expect(tested.discarded == discarded && reference.discarded == discarded,
         "Forget discards " + std::to_string(tested.discarded) + " ticks, the reference " +
             std::to_string(reference.discarded) + "; there were " + std::to_string(discarded));
  tally_->discarded += discarded;
  if (what < HET_DEV_MOVED) AgeOthers(slots_.size());
}

void World::ForgetKeys() {
  const size_t number = random_.Below(tables_.size());
  Table& table = tables_[number];
  const int what = static_cast<int>(random_.Below(5));
  const bool removed = what == HET_DEV_DROP && random_.Chance(0.5);
  std::vector<int64_t> keys;
  for (size_t n = random_.Below(30); n > 0; --n) {
    keys.push_back(random_.Chance(0.9) ? DrawKey(table) : static_cast<int64_t>(random_.Next()));
  }
  std::sort(keys.begin(), keys.end());
  if (random_.Chance(0.8)) keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  Note("forget " + std::to_string(what) + " of " + std::to_string(keys.size()) + " keys in table " +
       std::to_string(number));
  Reply tested, reference;
  Both(
      "ForgetKeys", [&](Side* side) { return side->ForgetKeys(number, what, keys); }, &tested, &reference);
  Expect(tested.code == HET_DEV_OK,
         "ForgetKeys answers " + std::to_string(tested.code) + ": " + tested.error);
  uint64_t discarded = 0;
  for (const int64_t key : keys) {
    if (what == HET_DEV_DROP) discarded += table.ledger->Discarded(key);
    if (!removed) continue;
    table.store->Remove(key);
    table.ledger->Removed(key);
  }
  Expect(tested.discarded == discarded && reference.discarded == discarded,
         "ForgetKeys discards " + std::to_string(tested.discarded) + " ticks, the reference " +
             std::to_string(reference.discarded) + "; there were " + std::to_string(discarded));
  tally_->discarded += discarded;
  if (what < HET_DEV_MOVED) AgeOthers(slots_.size());
}

void World::OthersPush() {
  for (Table& table : tables_) {
    if (!table.shared) continue;
    for (size_t n = random_.Below(20); n > 0; --n) {
      const int64_t key = DrawKey(table);
      std::vector<float> change;
      table.store->MergeOther(key, &random_, &change);
      if (!table.exact) continue;
      Held& held = table.ledger->At(key);
      for (size_t i = 0; i < change.size(); ++i) held.foreign[i] += change[i];
    }
  }
}

uint32_t World::PartitionOf(const Table& table, int64_t key) const {
  return Layout(table.config.partitions, table.config.hash_seed).OfKey(table.config.table, key);
}

void World::Notify(size_t number) {
  Table& table = tables_[number];
  const double share = random_.Pick(std::vector<double>{0, 0.5, 0.9, 1, 1, 1});
  std::vector<uint8_t> chosen(table.config.partitions);
  for (uint8_t& one : chosen) one = share == 1 || random_.Chance(share);
  const auto answers = [&](int64_t key) { return chosen[PartitionOf(table, key)] != 0; };
  std::vector<int64_t> named = table.store->Name(table.pull_bound, answers);
  for (const int64_t key : table.pool) {
    if (answers(key)) table.clocks[key] = table.store->Read(key).clock;
  }
  for (size_t p = 0; p < chosen.size(); ++p) table.answered[p] |= chosen[p];
  if (named.empty() && random_.Chance(0.9)) return;
  tally_->named += named.size();
  if (random_.Chance(0.1)) named.push_back(static_cast<int64_t>(random_.Next()));  // it has left
  if (random_.Chance(0.1) && !named.empty()) named.push_back(named.front());
  Note("the store names " + std::to_string(named.size()) + " rows of table " + std::to_string(number));
  Reply tested, reference;
  Both(
      "Moved", [&](Side* side) { return side->ForgetKeys(number, HET_DEV_MOVED, named); }, &tested,
      &reference);
  Expect(tested.code == HET_DEV_OK, "Moved answers " + std::to_string(tested.code) + ": " + tested.error);
}

void World::EndSubscriptions() {
  const size_t number = random_.Below(tables_.size());
  Table& table = tables_[number];
  std::vector<uint8_t> chosen(table.config.partitions);
  for (uint8_t& one : chosen) one = random_.Chance(0.5);
  Note("subscriptions end in table " + std::to_string(number));
  table.store->Reset([&](int64_t key) { return chosen[PartitionOf(table, key)] != 0; });
  Reply tested, reference;
  Both(
      "Unsubscribe", [&](Side* side) { return side->Forget(number, HET_DEV_UNSUBSCRIBE, &chosen); }, &tested,
      &reference);
  Expect(tested.code == HET_DEV_OK,
         "Unsubscribe answers " + std::to_string(tested.code) + ": " + tested.error);
  ++tally_->resets;
}

void World::CheckTrusted(const Use& use, int64_t key) {
  Table& table = tables_[use.table];
  const std::string of = table.name + ": key " + std::to_string(key);
  Expect(!use.trusted.empty() && use.trusted[PartitionOf(table, key)] != 0,
         of + " was given, though the store must be asked");
  const int64_t base = table.ledger->At(key).base;
  Expect(table.clocks[key] - base <= table.pull_bound,
         of + " was given with base " + std::to_string(base) + ", and the store had told of clock " +
             std::to_string(table.clocks[key]) + "; the bound is " + std::to_string(table.pull_bound));
  ++tally_->trusted;
}

void World::LookAtRows(size_t count) {
  for (size_t t = 0; t < reference_.tables(); ++t) {
    const Table& table = tables_[t];
    const bool all = count >= table.pool.size();
    for (size_t i = 0; i < std::min(count, table.pool.size()); ++i) {
      const int64_t key = all ? table.pool[i] : DrawKey(table);
      const Reply tested = tested_.Inspect(t, key), reference = reference_.Inspect(t, key);
      ExpectSameCode(tested, reference, "Inspect");
      ExpectSameRow(tested, reference, table.name, key);
    }
  }
}

void World::CheckStates() {
  for (size_t t = 0; t < reference_.tables(); ++t) {  // during creation only those that exist

    Reply tested, reference;
    tested = tested_.State(t);
    reference = reference_.State(t);
    ExpectSameCode(tested, reference, "State");
    ExpectSameState(tested, reference, tables_[t].name);
    Expect(tested.state.dirty == tables_[t].ledger->Dirty(),
           tables_[t].name + ": dirty rows are not those of the ledger");
  }
}

void World::ExpectUntouched() {
  ++looks_;
  CheckStates();
  LookAtRows(8);
}

void World::Deliver(size_t number, const Updates& updates, const std::string& what) {
  Table& table = tables_[number];
  const size_t width = table.config.row_floats;
  for (size_t i = 0; i < updates.keys.size(); ++i) {
    const int64_t key = updates.keys[i];
    const Held& held = table.ledger->At(key);
    const std::string of = table.name + ": " + what + " of key " + std::to_string(key);
    Expect(updates.ticks[i] > 0 && updates.ticks[i] == held.ticks,
           of + " has " + std::to_string(updates.ticks[i]) + " ticks, and by the ledger " +
               std::to_string(held.ticks));
    Expect(updates.clocks[i] == held.base + held.ticks,
           of + " has clock " + std::to_string(updates.clocks[i]) + ", and by the ledger " +
               std::to_string(held.base + held.ticks));
    const float* floats = updates.floats.data() + i * width;
    for (size_t j = 0; table.exact && j < width; ++j) {
      Expect(floats[j] == held.unsent[j], of + " is not what the ledger has");
    }
    table.store->Push(key, floats, updates.ticks[i]);
    table.ledger->Gone(key);
  }
}

void World::DeliverAll(const Step& step, const Reply& reply, const std::string& what) {
  for (const Updates& updates : reply.updates) Deliver(step.uses[updates.use].table, updates, what);
}

void World::Note(const std::string& line) {
  log_.push_back(line);
  if (log_.size() > 60) log_.pop_front();
}

std::string World::Log() const {
  std::string log;
  for (const std::string& line : log_) log += "  " + line + "\n";
  return log;
}

}  // namespace het::device_check
