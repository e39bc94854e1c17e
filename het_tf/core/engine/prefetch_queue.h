// Batches that wait to be prefetched: any thread adds, the call that has the client takes all.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "het_tf/core/plan/batch_call.h"

namespace het {

// A batch whose lookup will come.
struct ComingBatch {
  std::vector<TablePtr> tables;
  uint32_t check_ahead = 0;  // as in CachedRead
  BatchPlan plan;
};

// Thread-safe. The mutex is held for some instructions only, so that adding never waits for the
// network.
class PrefetchQueue {
 public:
  // More than a pipeline has on its way: the client has been busy for long, and a batch less does
  // no harm.
  static constexpr size_t kMost = 64;

  bool empty() {
    std::lock_guard<std::mutex> lock(mutex_);
    return batches_.empty();
  }
  void Add(std::unique_ptr<ComingBatch> batch) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (batches_.size() < kMost) batches_.push_back(std::move(batch));
  }
  // Oldest first.
  std::vector<std::unique_ptr<ComingBatch>> TakeAll() {
    std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(batches_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<ComingBatch>> batches_;
};

}  // namespace het
