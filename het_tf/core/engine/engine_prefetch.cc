// Engine: rows of batches whose lookups will come.
//
//   Prefetch ──plan──► queue ──► StartPrefetches, by whoever has the client ──► Client::ReadAhead
//
// The client may be with a lookup that waits for the network. So nobody waits for it here: the batch is left
// in the queue, and who has the client starts it when he has finished, before he lets the client go. What was
// added after that he finds once he has let go. Answers are taken in by the thread (LookAfterPushes), or by
// the next call.
#include <new>

#include "het_tf/core/engine/engine_call.h"
#include "het_tf/core/engine/prefetch_queue.h"

namespace het {

uint64_t KindOf(Span<const TablePtr> tables, Span<const FeatureIds> features) {
  uint64_t kind = 1;
  for (const FeatureIds& feature : features) {
    kind = Mix64(kind ^ tables[feature.table]->schema->id());
    kind = Mix64(kind ^ (feature.padding_id ? static_cast<uint64_t>(*feature.padding_id) + 1 : 0));
  }
  return kind | 1;
}

Status Engine::Prefetch(const BatchCall& call, uint32_t check_ahead, const NoFork&) {
  HET_RETURN_IF_ERROR(CheckIds(call));
  bool any_cached = false;
  for (const TablePtr& table : call.tables) {
    if (table->options.cache && table->options.cache->on_device()) {
      return Status(
          Code::kUnimplemented,
          "table '" + table->schema->spec().name +
              "' is cached in GPU memory; only rows that are cached in host memory can be "
              "prefetched. Leave het_tf.prefetch out, or give the layer het_tf.Cache(device=\"cpu\")");
    }
    any_cached = any_cached || table->options.cache;
  }
  if (!remote() || !any_cached) return Status();  // the rows are in this process
  try {
    auto batch = std::make_unique<ComingBatch>();
    batch->tables.assign(call.tables.begin(), call.tables.end());
    batch->kind = KindOf(call.tables, call.features);
    batch->check_ahead = check_ahead;
    // On this thread alone: the pool is the lookups'.
    ThreadPool nobody_else(1);
    batch->plan.Build(call.features, static_cast<uint32_t>(call.tables.size()), transport_->id(0),
                      &nobody_else);
    prefetches_->Add(std::move(batch));
  } catch (const std::bad_alloc&) {
    return Status();  // the lookup will say so, if it is still true then
  }
  ServePrefetches();
  return Status();
}

// Starts what is in the queue. client_mutex_ is held.
void Engine::StartPrefetches() {
  for (std::unique_ptr<ComingBatch> batch = prefetches_->TakeAll(); batch != nullptr;
       batch = std::move(batch->next)) {
    try {
      CachedRead wanted;
      wanted.kind = batch->kind;
      wanted.check_ahead = batch->check_ahead;
      for (const BatchPlan::Group& group : batch->plan.groups()) {
        const Table& table = *batch->tables[group.table];
        if (group.entries == 0 || !table.options.cache) continue;
        if (!client_->HasTable(table.schema->id())) continue;
        wanted.parts.push_back({table.schema->id(), group.partition, group.uniques, batch->plan.keys(group),
                                batch->plan.hashes(group), batch->plan.rows(group), nullptr});
      }
      client_->ReadAhead(wanted);
    } catch (const std::bad_alloc&) {
    }
  }
}

// Somebody is to take in what this call has left on its way. client_mutex_ is held.
void Engine::LeaveToBackground() {
  // It will look soon anyway, but for rows that a lookup will wait for.
  if (!asleep_ && background_.started() && !client_->AheadOnWay()) return;
  if (!client_->Busy()) return;
  asleep_ = false;
  background_.Wake();
}

void Engine::ServePrefetches() {
  // Either the client is free here, or its holder finds afterwards what was added before. But he is no
  // servant of threads that add faster than he starts: a lookup would not return, and a fork would wait for
  // the background thread's turn to end. What is left after a few rounds is that thread's next turn's.
  constexpr int kRounds = 4;
  for (int round = 1; round <= kRounds && !prefetches_->empty(); ++round) {
    const std::unique_lock<std::mutex> lock(client_mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return;
    StartPrefetches();
    if (round < kRounds) {
      LeaveToBackground();
    } else {
      asleep_ = false;
      background_.Wake();
    }
  }
}

}  // namespace het
