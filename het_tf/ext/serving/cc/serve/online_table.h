// What a serving process knows of a store's partitions and tables: the life that its cached rows belong to.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "het_tf/core/row/schema.h"
#include "het_tf/ext/serving/cc/serve/online_cache.h"

namespace het::serve {

// Incarnations of partitions. Thread-safe.
class Partitions {
 public:
  explicit Partitions(uint32_t count) : incarnations_(count), lives_(count) {}

  uint32_t count() const { return static_cast<uint32_t>(lives_.size()); }
  uint32_t life(uint32_t partition) const { return lives_[partition].load(std::memory_order_acquire); }
  // Records an answer's incarnation. Returns whether the partition restarted since the last one.
  bool Saw(uint32_t partition, uint64_t incarnation) {
    const uint64_t before = incarnations_[partition].exchange(incarnation, std::memory_order_acq_rel);
    if (before == incarnation || before == 0) return false;
    lives_[partition].fetch_add(1, std::memory_order_acq_rel);
    return true;
  }

 private:
  std::vector<std::atomic<uint64_t>> incarnations_;  // 0: not known yet
  std::vector<std::atomic<uint32_t>> lives_;
};

// One table: its cache, and its epoch in each partition. Thread-safe.
class OnlineTable {
 public:
  OnlineTable(Schema schema, const Partitions* partitions, uint64_t hash_seed, size_t cache_rows)
      : cache(schema->dim(), hash_seed, cache_rows),
        schema_(std::move(schema)),
        partitions_(partitions),
        epochs_(partitions->count()) {}

  const TableSchema& schema() const { return *schema_; }
  // The life of its rows in a partition: the sum of two numbers that only grow, so it stays the same only as
  // long as both do.
  uint32_t life(uint32_t partition) const {
    return life_.load(std::memory_order_acquire) + partitions_->life(partition);
  }
  // 0: not known yet; the store's answer brings it.
  uint64_t epoch(uint32_t partition) const { return epochs_[partition].load(std::memory_order_acquire); }
  // Records an answer's epoch. Returns true if the table was loaded or cleared since: all its rows are then
  // invalid. The table has rows in other partitions, whose epochs become unknown.
  bool Saw(uint32_t partition, uint64_t epoch) {
    std::lock_guard<std::mutex> lock(mutex_);
    const uint64_t before = epochs_[partition].load(std::memory_order_relaxed);
    if (before == epoch) return false;
    if (before != 0) {
      for (auto& other : epochs_) other.store(0, std::memory_order_relaxed);
      life_.fetch_add(1, std::memory_order_acq_rel);
    }
    epochs_[partition].store(epoch, std::memory_order_release);
    return before != 0;
  }

  OnlineCache cache;

 private:
  const Schema schema_;
  const Partitions* const partitions_;
  std::mutex mutex_;
  std::vector<std::atomic<uint64_t>> epochs_;
  std::atomic<uint32_t> life_{0};
};

}  // namespace het::serve
