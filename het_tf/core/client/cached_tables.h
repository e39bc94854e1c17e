// A client's caches, by table, and the partitions of keys.
#pragma once

#include <map>
#include <memory>

#include "het_tf/core/cache/table_cache.h"
#include "het_tf/core/wire/layout.h"

namespace het {

class CachedTables {
 public:
  // `seed`: as for TableCache.
  CachedTables(uint32_t partitions, uint64_t hash_seed, uint64_t seed = 0)
      : layout_(partitions, hash_seed), hash_seed_(hash_seed), seed_(seed) {}

  const Layout& layout() const { return layout_; }
  uint32_t partitions() const { return layout_.partitions(); }
  // `lines`: holds the rows, if they are on a device. Replaces a table with the same id.
  void Add(const Schema& schema, const CacheConfig& config, DeviceLines* lines = nullptr) {
    auto cache = std::make_unique<TableCache>(schema, config, hash_seed_, lines, seed_, BudgetOf(config));
    limits_ages_ = limits_ages_ || cache->ages() != nullptr;
    caches_[schema->id()] = std::move(cache);
  }
  void Remove(uint64_t table) { caches_.erase(table); }
  // Returns null if there is none.
  TableCache* Find(uint64_t table) const {
    const auto found = caches_.find(table);
    return found == caches_.end() ? nullptr : found->second.get();
  }
  TableCache& at(uint64_t table) const { return *caches_.at(table); }
  // In order of their ids.
  auto begin() const { return caches_.begin(); }
  auto end() const { return caches_.end(); }
  bool empty() const { return caches_.empty(); }

  // Whether a table has, or had, a limit on the age of unsent ticks.
  bool limits_ages() const { return limits_ages_; }

  uint32_t PartitionOf(const TableCache& cache, Key key) const {
    return layout_.OfKey(cache.schema()->id(), key);
  }
  // Calls fn(line) for every line of the partition; fn may drop it.
  template <typename Fn>
  void ForEachLine(TableCache* cache, uint32_t partition, Fn fn) const {
    cache->lines().ForEach([&](uint32_t line) {
      if (PartitionOf(*cache, cache->lines().meta(line).key) == partition) fn(line);
    });
  }

 private:
  // Null: the table has a budget of its own.
  std::shared_ptr<CacheBudget> BudgetOf(const CacheConfig& config) {
    if (config.layer == 0) return nullptr;
    std::weak_ptr<CacheBudget>& known = budgets_[config.layer];
    std::shared_ptr<CacheBudget> budget = known.lock();
    if (budget == nullptr) known = budget = std::make_shared<CacheBudget>(config.layer_bytes);
    return budget;
  }

  const Layout layout_;
  const uint64_t hash_seed_;
  const uint64_t seed_;
  std::map<uint64_t, std::weak_ptr<CacheBudget>> budgets_;  // by layer
  std::map<uint64_t, std::unique_ptr<TableCache>> caches_;
  bool limits_ages_ = false;
};

}  // namespace het
