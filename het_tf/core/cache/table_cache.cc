#include "het_tf/core/cache/table_cache.h"

namespace het {

TableCache::TableCache(Schema schema, const CacheConfig& config, uint64_t hash_seed, DeviceLines* device,
                       uint64_t seed, std::shared_ptr<CacheBudget> budget)
    : schema_(std::move(schema)),
      device_(device),
      lines_(schema_->row_floats(), hash_seed),
      marks_(&lines_, &numbers_),
      policy_(schema_, config),
      unsent_(schema_, seed, {&lines_, &policy_, &numbers_, &counters_}),
      budget_(budget != nullptr ? std::move(budget)
                                : std::make_shared<CacheBudget>(config.capacity * lines_.line_bytes())) {
  if (config.push_max_age && device == nullptr) ages_.emplace(*config.push_max_age, &lines_, &unsent_);
  budget_->Join(this);
}

uint32_t TableCache::Insert(Key key, uint64_t hash, Clock base, bool transient) {
  const uint32_t line = lines_.Add(key, hash, base);
  try {
    marks_.Begin(line, transient);
    if (!transient) policy_.eviction().Insert(line);
  } catch (...) {
    lines_.Erase(line);
    throw;
  }
  policy_.ForgetNextUse(line);
  if (transient) {
    ++counters_.transient_rows;
  } else {
    ++counters_.inserts;
    budget_->Take(lines_.line_bytes());
  }
  return line;
}

uint32_t TableCache::Drop(uint32_t line) {
  const uint32_t ticks = unsent_.Drop(line);
  if (marks_.held(line)) {
    marks_.Invalidate(line);
    return ticks;
  }
  if (!marks_.transient(line)) {
    policy_.eviction().Erase(line);
    budget_->Give(lines_.line_bytes());
  }
  marks_.End(line);
  lines_.Erase(line);
  return ticks;
}

void TableCache::Evict(uint32_t line) {
  if (unsent_.Leave(line)) marks_.Unsubscribe(line);  // its push says that it has left
  ++counters_.evictions;
  Drop(line);
}

void TableCache::BeginLookup(uint64_t step) {
  numbers_.Begin(step);
  if (numbers_.newest() - trimmed_ <= kUntrimmed) return;
  DropTransient();
  MakeRoom(0);
}

void TableCache::DropTransient() {
  marks_.ForEachFreeTransient([this](uint32_t line) { Evict(line); });
}

void TableCache::LetGo(size_t count) {
  Vector<uint32_t> victims;
  policy_.Victims(count, lines_, marks_, &victims);
  for (uint32_t line : victims) Evict(line);
  policy_.eviction().SetCapacity(capacity());
}

}  // namespace het
