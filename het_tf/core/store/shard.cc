#include "het_tf/core/store/shard.h"

#include <algorithm>
#include <ctime>
#include <utility>

namespace het {
namespace {

// Redis' own approximation of LRU takes the oldest of five keys; a few more are cheap here.
constexpr int kSample = 8;
constexpr int kTries = 4 * kSample;

}  // namespace

uint32_t UnixTime() { return static_cast<uint32_t>(std::time(nullptr)); }

Swept& Swept::operator+=(const Swept& other) {
  ttl += other.ttl;
  min_count += other.min_count;
  max_rows += other.max_rows;
  clients += other.clients;
  return *this;
}

uint32_t Shard::Insert(Key key, uint64_t hash) {
  numbers_.Reserve(rows_.end() + 1);
  const uint32_t row = rows_.Insert(key, hash);
  rows_.meta(row).clock = birth_clock();
  RaiseNewest(birth_clock());
  return row;
}

uint32_t Shard::FindOrCreate(Key key, uint64_t hash, bool* created) {
  uint32_t row = rows_.Find(key, hash);
  *created = row == kNoRow;
  if (*created) {
    row = Insert(key, hash);
    schema_->InitRow(key, schema_->stored().exact() ? rows_.data(row) : row_.data());
    Set(row);
  }
  return row;
}

void Shard::Renew(uint32_t row, Clock age) {
  Clock& clock = rows_.meta(row).clock;
  clock = std::min(BornAfter(clock), kMaxClock - kBirthGap) + AgeOf(age);
  RaiseNewest(clock);
}

void Shard::RaiseFloor(Clock clock) { clock_floor_ = std::max(clock_floor_, std::min(clock, kMaxClock)); }

void Shard::Remove(uint32_t row) {
  RaiseFloor(std::max<Clock>(rows_.meta(row).clock, 1));
  rows_.Erase(row);
  numbers_.Forget(row);
  if (rows_.size() == 0) DropRows();
}

void Shard::DropRows() {
  rows_.Clear();
  numbers_.Clear();
}

void Shard::Clear(uint64_t epoch) {
  DropRows();
  epoch_ = epoch;
  newest_ = 0;
  clock_floor_ = 0;  // copies of the old epoch are refused with any clock
}

uint32_t Shard::LeastRecentlyUsedOfAFew() {
  auto use = [this](uint32_t row) {
    const RowMeta& meta = rows_.meta(row);
    return std::make_pair(meta.last_used, meta.count);
  };
  uint32_t oldest = kNoRow;
  for (int tries = 0, seen = 0; tries < kTries && seen < kSample; ++tries) {
    const auto row = static_cast<uint32_t>(((Mix64(++draws_) >> 32) * rows_.end()) >> 32);
    if (!rows_.live(row)) continue;
    ++seen;
    if (oldest == kNoRow || use(row) < use(oldest)) oldest = row;
  }
  return oldest;
}

Swept Shard::Sweep(uint32_t now, size_t budget, uint32_t shares, Vector<Key>* removed) {
  Swept swept;
  auto remove = [&](uint32_t row, uint64_t* count) {
    if (removed != nullptr) removed->push_back(rows_.meta(row).key);
    Remove(row);
    ++*count;
  };
  const bool by_age = limits_.ttl != 0 || limits_.min_count != 0;
  for (size_t left = by_age ? std::min<size_t>(budget, rows_.end()) : 0; left > 0; --left) {
    if (rows_.end() == 0) break;
    if (sweep_at_ >= rows_.end()) sweep_at_ = 0;
    const uint32_t row = sweep_at_++;
    if (!rows_.live(row)) continue;
    const RowMeta& meta = rows_.meta(row);
    const uint32_t updated = std::max(meta.last_used, limits_.since);
    const uint32_t age = now > updated ? now - updated : 0;
    if (limits_.ttl != 0 && age >= limits_.ttl) {
      remove(row, &swept.ttl);
    } else if (meta.count < limits_.min_count && age >= limits_.min_count_ttl) {
      remove(row, &swept.min_count);
    }
  }
  if (limits_.max_rows == 0) return swept;
  const uint64_t share = (limits_.max_rows - 1) / shares + 1;
  for (size_t left = budget; left > 0 && rows_.size() > share; --left) {
    const uint32_t row = LeastRecentlyUsedOfAFew();
    if (row == kNoRow) break;  // rows are sparse; another sweep draws others
    remove(row, &swept.max_rows);
  }
  return swept;
}

}  // namespace het
