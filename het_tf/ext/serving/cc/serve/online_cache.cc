#include "het_tf/ext/serving/cc/serve/online_cache.h"

#include <algorithm>
#include <cstring>

namespace het::serve {

OnlineCache::OnlineCache(size_t dim, uint64_t hash_seed, size_t capacity)
    : dim_(dim), capacity_((capacity + kShards - 1) / kShards) {
  for (size_t i = 0; i < kShards; ++i) shards_.push_back(std::make_unique<Shard>(dim, hash_seed));
}

OnlineCache::Found OnlineCache::Read(Key key, uint64_t hash, uint32_t life, double since, float* value,
                                     Clock* clock) {
  Shard& shard = ShardOf(hash);
  std::lock_guard<std::mutex> lock(shard.mutex);
  const uint32_t row = shard.rows.Find(key, hash);
  if (row == kNoRow) return Found::kAbsent;
  Line& line = shard.lines[row];
  if (line.life != life) return Found::kAbsent;
  line.used = true;
  std::memcpy(value, shard.rows.data(row), dim_ * sizeof(float));
  *clock = shard.rows.meta(row).clock;
  return line.when >= since ? Found::kFresh : Found::kOld;
}

void OnlineCache::Put(Key key, uint64_t hash, uint32_t life, double when, Clock clock, const float* value) {
  if (capacity_ == 0) return;
  Shard& shard = ShardOf(hash);
  std::lock_guard<std::mutex> lock(shard.mutex);
  uint32_t row = shard.rows.Find(key, hash);
  if (row == kNoRow) {
    if (shard.rows.size() >= capacity_) Evict(&shard);
    row = shard.rows.Insert(key, hash);
    if (shard.lines.size() <= row) {
      try {
        shard.lines.resize(std::max<size_t>(row + 1, shard.lines.size() * 2));
      } catch (...) {
        shard.rows.Erase(row);
        throw;
      }
    }
    shard.lines[row] = Line{when, life, false};
  } else if (Line& line = shard.lines[row]; line.life != life || line.when <= when) {
    line.when = when;
    line.life = life;
  } else {
    return;
  }
  shard.rows.meta(row).clock = clock;
  std::memcpy(shard.rows.data(row), value, dim_ * sizeof(float));
}

void OnlineCache::Confirm(Key key, uint64_t hash, uint32_t life, double when, Clock clock) {
  Shard& shard = ShardOf(hash);
  std::lock_guard<std::mutex> lock(shard.mutex);
  const uint32_t row = shard.rows.Find(key, hash);
  if (row == kNoRow || shard.rows.meta(row).clock != clock) return;
  Line& line = shard.lines[row];
  if (line.life == life) line.when = std::max(line.when, when);
}

// The shard is not empty. The hand clears each row's mark, so it finds an unmarked row by the second round.
void OnlineCache::Evict(Shard* shard) {
  RowStore& rows = shard->rows;
  for (;;) {
    if (shard->hand >= rows.end()) shard->hand = 0;
    const uint32_t row = shard->hand++;
    if (!rows.live(row)) continue;
    if (std::exchange(shard->lines[row].used, false)) continue;
    rows.Erase(row);
    ++shard->evicted;
    return;
  }
}

size_t OnlineCache::size() const {
  size_t sum = 0;
  for (const auto& shard : shards_) {
    std::lock_guard<std::mutex> lock(shard->mutex);
    sum += shard->rows.size();
  }
  return sum;
}

size_t OnlineCache::bytes() const {
  size_t sum = 0;
  for (const auto& shard : shards_) {
    std::lock_guard<std::mutex> lock(shard->mutex);
    sum += shard->rows.bytes() + shard->lines.capacity() * sizeof(Line);
  }
  return sum;
}

uint64_t OnlineCache::evicted() const {
  uint64_t sum = 0;
  for (const auto& shard : shards_) {
    std::lock_guard<std::mutex> lock(shard->mutex);
    sum += shard->evicted;
  }
  return sum;
}

}  // namespace het::serve
