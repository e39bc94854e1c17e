// Batches that wait to be prefetched: anybody adds, whoever has the client takes all.
//
// Without a lock: whoever adds never waits, and a child of fork finds it in order whatever other threads were
// at.
#ifndef HET_TF_CORE_ENGINE_PREFETCH_QUEUE_H_
#define HET_TF_CORE_ENGINE_PREFETCH_QUEUE_H_

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "het_tf/core/engine/engine.h"
#include "het_tf/core/plan/batch_plan.h"

namespace het {

// A batch whose lookup will come.
struct ComingBatch {
  std::vector<TablePtr> tables;
  uint64_t kind = 0;         // of the lookup (KindOf)
  uint32_t check_ahead = 0;  // as in CachedRead
  BatchPlan plan;
  std::unique_ptr<ComingBatch> next;
};

class PrefetchQueue {
 public:
  // More than a pipeline has on its way: the client has been busy for long, and a batch less does no harm.
  static constexpr size_t kMost = 64;

  ~PrefetchQueue() { TakeAll(); }

  // It is a write too (of what is there), so that it comes before or after an Add in one order: whoever has
  // let a mutex go and then finds nothing here has let it go before the next Add, and whoever adds finds it
  // free.
  bool empty() {
    ComingBatch* none = nullptr;
    return newest_.compare_exchange_strong(none, nullptr, std::memory_order_acq_rel);
  }
  void Add(std::unique_ptr<ComingBatch> batch) {
    if (size_.fetch_add(1) >= kMost) {
      size_.fetch_sub(1);
      return;
    }
    ComingBatch* const added = batch.release();
    ComingBatch* before = newest_.load(std::memory_order_relaxed);
    do {
      static_cast<void>(added->next.release());
      added->next.reset(before);
    } while (!newest_.compare_exchange_weak(before, added, std::memory_order_acq_rel));
  }
  // Oldest first. Nothing fails here.
  std::unique_ptr<ComingBatch> TakeAll() {
    std::unique_ptr<ComingBatch> taken(newest_.exchange(nullptr, std::memory_order_acq_rel));
    std::unique_ptr<ComingBatch> oldest_first;
    while (taken != nullptr) {
      size_.fetch_sub(1);
      std::unique_ptr<ComingBatch> rest = std::move(taken->next);
      taken->next = std::move(oldest_first);
      oldest_first = std::move(taken);
      taken = std::move(rest);
    }
    return oldest_first;
  }

 private:
  std::atomic<ComingBatch*> newest_{nullptr};
  std::atomic<size_t> size_{0};
};

// Of a call's lookups: equal for those that may have the same keys in mind.
uint64_t KindOf(Span<const TablePtr> tables, Span<const FeatureIds> features);

}  // namespace het

#endif  // HET_TF_CORE_ENGINE_PREFETCH_QUEUE_H_
