#include "het_tf/core/store/subscribers.h"

#include <limits>

namespace het {
namespace {

// For a removed row: no copy of it is valid, whatever its base. (Clock 0 would differ only from bases that
// are known exactly.)
constexpr Clock kGone = std::numeric_limits<Clock>::min();
// In place of a clock that an answer brought.
constexpr Clock kNamed = kGone;

}  // namespace

// Unsigned, since a client may send any clock.
bool Subscribers::Table::Stale(Clock clock, Clock base) const {
  const auto lag = static_cast<Clock>(static_cast<uint64_t>(clock) - static_cast<uint64_t>(base));
  return clock < base || lag < 0 || lag > bound.Of(clock);
}

// The client's base already includes its own ticks, which were added when they went into a frame. The row may
// have moved all the same: a recreated row has a far higher clock.
bool Subscribers::Table::Own(Key key, Entry* entry, uint32_t ticks, Clock clock) noexcept {
  entry->base += ticks;
  if (entry->moved != 0 && moved[entry->moved - 1].clock != kNamed) moved[entry->moved - 1].clock += ticks;
  return Other(key, entry, clock);
}

bool Subscribers::Table::Other(Key key, Entry* entry, Clock clock) noexcept {
  if (entry->moved != 0) {
    moved[entry->moved - 1].latest = clock;
    return true;
  }
  if (!Stale(clock, entry->base)) return true;
  try {
    moved.push_back({key, kNamed, clock, 0});
  } catch (const std::bad_alloc&) {
    return false;
  }
  entry->moved = static_cast<uint32_t>(moved.size());
  return true;
}

void Subscribers::Table::Unmove(size_t at) {
  rows.find(moved[at].key)->second.moved = 0;
  if (at + 1 < moved.size()) {
    moved[at] = moved.back();
    rows.find(moved[at].key)->second.moved = static_cast<uint32_t>(at + 1);
  }
  moved.pop_back();
}

size_t Subscribers::Table::Drop(Span<const Key> keys, uint32_t acknowledged) noexcept {
  size_t dropped = 0;
  for (Key key : keys) {
    const auto entry = rows.find(key);
    if (entry == rows.end() || entry->second.number > acknowledged) continue;
    if (entry->second.moved != 0) Unmove(entry->second.moved - 1);
    rows.erase(entry);
    ++dropped;
  }
  return dropped;
}

size_t Subscribers::Table::Acknowledge(uint32_t number) {
  size_t let_go = 0;
  for (size_t at = moved.size(); at-- > 0;) {
    Moved& item = moved[at];
    const bool taken = item.number != 0 && item.number <= number;
    item.number = 0;
    if (!taken) continue;
    const auto entry = rows.find(item.key);
    if (item.clock == kNamed) {
      Unmove(at);
      rows.erase(entry);
      ++let_go;
      continue;
    }
    entry->second.base = item.clock;
    item.clock = kNamed;
    if (!Stale(item.latest, entry->second.base)) Unmove(at);
  }
  return let_go;
}

Subscribers::Table* Subscribers::Record::Find(uint64_t table) {
  for (Table& held : tables) {
    if (held.table == table) return &held;
  }
  return nullptr;
}

size_t Subscribers::Record::held() const {
  size_t sum = 0;
  for (const Table& table : tables) sum += table.rows.size();
  return sum;
}

Subscribers::Records::iterator Subscribers::Forget(Records::iterator record) noexcept {
  held_ -= record->second.held();
  return records_.erase(record);
}

bool Subscribers::ForgetOldest(ClientId keep) {
  auto oldest = records_.end();
  for (auto record = records_.begin(); record != records_.end(); ++record) {
    if (record->first == keep) continue;
    if (oldest == records_.end() || record->second.last < oldest->second.last) oldest = record;
  }
  if (oldest == records_.end()) return false;
  Forget(oldest);
  return true;
}

void Subscribers::ForgetSilent(uint32_t now) {
  for (auto record = records_.begin(); record != records_.end();) {
    Record& known = record->second;
    if (known.seen != known.last) known.heard = now;
    known.seen = known.last;
    const bool silent = now > known.heard && now - known.heard >= kSilentSeconds;
    record = silent ? Forget(record) : std::next(record);
  }
}

void Subscribers::Clear() noexcept {
  records_.clear();
  held_ = 0;
}

void Subscribers::Changed(uint64_t table) noexcept {
  for (auto record = records_.begin(); record != records_.end();) {
    record = record->second.Find(table) != nullptr ? Forget(record) : std::next(record);
  }
}

void Subscribers::Removed(uint64_t table, Key key) noexcept {
  for (auto record = records_.begin(); record != records_.end();) {
    Table* held = record->second.Find(table);
    bool noted = true;
    if (held != nullptr) {
      const auto entry = held->rows.find(key);
      if (entry != held->rows.end()) noted = held->Other(key, &entry->second, kGone);
    }
    record = noted ? std::next(record) : Forget(record);
  }
}

void Subscribers::Left(ClientId from, uint32_t acknowledged, uint64_t table, Span<const Key> keys) noexcept {
  const auto record = keys.empty() ? records_.end() : records_.find(from);
  if (record == records_.end() || acknowledged < record->second.first || acknowledged > record->second.last)
    return;
  if (Table* held = record->second.Find(table)) held_ -= held->Drop(keys, acknowledged);
}

size_t Subscribers::bytes() const {
  constexpr size_t kMapNode = 4 * sizeof(void*);
  size_t sum = 0;
  for (const auto& [client, record] : records_) {
    sum += sizeof(ClientId) + sizeof(Record) + kMapNode + record.tables.capacity() * sizeof(Table);
    for (const Table& table : record.tables) {
      sum += table.rows.bucket_count() * (sizeof(std::pair<const Key, Entry>) + 1) +
             table.moved.capacity() * sizeof(Moved);
    }
  }
  return sum;
}

Subscribers::Turn Subscribers::Begin(ClientId client, uint32_t request, uint32_t acknowledged,
                                     const Vector<Use>& uses) {
  Turn turn;
  turn.subscribers_ = this;
  auto record = records_.find(client);
  // A duplicate or a late request, whose answer no call waits for.
  if (record != records_.end() && static_cast<int32_t>(request - record->second.request) <= 0) return turn;

  size_t incoming = 0;
  for (const Use& use : uses) incoming += use.incoming;
  auto fits = [&] {
    if (record == records_.end()) return false;
    if (acknowledged < record->second.first || acknowledged > record->second.last) return false;
    return std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
      const Table* held = record->second.Find(use.table);
      return held == nullptr || (held->epoch == use.epoch && held->bound == use.bound);
    });
  };
  if (number_ == std::numeric_limits<uint32_t>::max()) {
    Clear();
    record = records_.end();
    number_ = 0;
  }
  bool fresh = !fits() || incoming > limit_;
  if (fresh && record != records_.end()) Forget(record);
  resets_ += fresh;
  if (incoming > limit_) return turn;
  while (held_ + incoming > limit_ && ForgetOldest(client)) {
  }
  if (held_ + incoming > limit_) {  // only this client is left
    Clear();
    resets_ += !fresh;
    fresh = true;
  }
  ++number_;
  Record* const own = &records_[client];
  own->request = request;
  if (fresh) own->first = number_;
  own->last = number_;
  for (Table& held : own->tables) held_ -= held.Acknowledge(acknowledged);
  for (const Use& use : uses) {
    if (use.incoming > 0 && own->Find(use.table) == nullptr)
      own->tables.push_back({use.table, use.epoch, use.bound, {}, {}});
  }
  turn.record_ = own;
  turn.number_ = number_;
  turn.acknowledged_ = acknowledged;
  turn.reset_ = fresh;
  return turn;
}

void Subscribers::Turn::At(uint64_t table, const Vector<Key>& dropped) {
  table_ = number_ == 0 ? nullptr : record_->Find(table);
  if (table_ != nullptr && !reset_) subscribers_->held_ -= table_->Drop(dropped, acknowledged_);
}

void Subscribers::Turn::Subscribe(Key key, Clock clock) {
  if (table_ == nullptr) return;
  const auto [entry, made] = table_->rows.try_emplace(key, Entry{clock, number_, 0});
  if (made) {
    ++subscribers_->held_;
    return;
  }
  // The client may have the row from before, and never get this answer.
  entry->second.base = std::min(entry->second.base, clock);
  entry->second.number = number_;
  if (entry->second.moved == 0) return;
  Moved& item = table_->moved[entry->second.moved - 1];
  item.clock = clock;
  item.number = number_;
}

void Subscribers::Turn::Notify(Vector<Key>* keys) {
  if (table_ == nullptr) return;
  for (Moved& moved : table_->moved) {
    if (moved.number != 0) continue;  // this answer brings it
    keys->push_back(moved.key);
    moved.clock = kNamed;
    moved.number = number_;
    ++subscribers_->notified_;
  }
  std::sort(keys->begin(), keys->end());
}

}  // namespace het
