// A worker of a world that trains as TensorFlow's ops do: an engine, and one layer that looks up all tables,
// each with a feature of its own.
//
// The engine has no thread, so that schedules are repeatable: lookups begin early when a batch is planned,
// and pushes go on when the engine is called.
#pragma once

#include <memory>
#include <vector>

#include "het_tf/core/engine/caches.h"
#include "het_tf/core/engine/steps.h"
#include "het_tf/core/engine/tables.h"
#include "het_tf/core/plan/gradient_sums.h"
#include "het_tf/core/store/local_store.h"
#include "het_tf/ext/streams/cc/window.h"
#include "tests/testing/test_step.h"

namespace het::testing {

// Unique keys of each table.
using KeysOfTables = std::vector<std::vector<Key>>;
// The gradient of the variable that stands for all tables: [KeptGradients::kSlots, 2]; empty: zeros.
using Tickets = std::vector<float>;

class StreamWorker {
 public:
  static constexpr uint64_t kLayer = 1;

  StreamWorker(LocalService* service, std::unique_ptr<Transport> transport, const ClientConfig& config,
               const CacheConfig& cache, const std::vector<Schema>& schemas);

  Client& client() { return *parts_.driver.client(); }
  Steps& steps() { return steps_; }
  Caches& caches() { return caches_; }
  Tables& tables() { return tables_; }

  // The keys of a step, in the order in which they are looked up: a planned batch is matched by it.
  KeysOfTables KeysOf(const TestStep& step) const;
  // Plans the batch of worker `me` at a place of the stream. `all`: the batches of all workers, for rows that
  // travel on demand; null: only this worker's are known.
  Status Plan(const KeysOfTables& mine, const std::vector<KeysOfTables>* all, uint64_t place, uint32_t me,
              bool summed);
  // The pass has no step behind the one at this place.
  void EndPass(uint64_t place) { window().EndPass(kLayer, place); }
  // All workers have flushed.
  void Settle() { caches_.Settle(); }
  // Looks up the keys of the step, and points step->Value at the rows. Not training: no gradient follows.
  Status Lookup(TestStep* step, bool training);
  // Applies step's sums as gradients. `active` false: the step has no gradient.
  Status Apply(TestStep* step, float learning_rate, bool active);
  // Keeps step's sums / factor as a gradient of its lookup, and adds its ticket * factor to *tickets.
  Status Keep(TestStep* step, uint32_t me, float factor, Tickets* tickets);
  Status ApplyKept(const Tickets& tickets, float learning_rate);
  // The same in two halves, for gradients that are summed over the workers.
  Status SumKept(const Tickets& tickets, uint32_t workers, GradientSums* sums, SumsLayout* layout);
  Status ApplySums(const SumsLayout& layout, const MergedSums& sums, float learning_rate);

 private:
  Window& window() { return Window::Of(parts_.lookahead.get()); }
  template <typename Fn>
  auto WithCall(const KeysOfTables& keys, Fn fn);
  // Calls fn(call, args) for the gradients of a step.
  template <typename Fn>
  auto WithGradients(TestStep* step, float learning_rate, bool active, Fn fn, float factor = 1);
  KeptCall CallOf(const Tickets& tickets, const std::vector<float>& rates) const;

  EngineParts parts_;
  Steps steps_;
  Caches caches_;
  Tables tables_;
  std::vector<TablePtr> found_;
  std::vector<std::vector<float>> rows_;  // of the last lookup, by table
};

}  // namespace het::testing
