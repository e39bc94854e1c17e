// Planned lookups. window_on_demand.cc has the rows that travel on demand.
#include "het_tf/ext/streams/cc/window.h"

#include <utility>

#include "het_tf/core/engine/extensions.h"

namespace het {

const bool Window::kRegistered = [] {
  extensions.lookahead = [](EngineParts* parts) -> std::unique_ptr<Lookahead> {
    return std::make_unique<Window>(parts);
  };
  return true;
}();

Status Window::Plan(const BatchCall& call, size_t window, const GlobalStep::Ids* all) {
  HET_RETURN_IF_ERROR(CheckSize(call));
  const bool remote = parts_->remote();
  std::unique_ptr<PlannedStep> step = coming_.New();
  step->may_begin = remote;
  step->cached = false;
  for (const TablePtr& table : call.tables) {
    if (table->options.on_device()) {
      return Status(
          Code::kUnimplemented,
          "table '" + table->name() +
              "' is cached in GPU memory; only lookups of rows that are cached in host memory can be "
              "planned. Leave het_tf.lookahead out, or give the layer het_tf.Cache(device=\"cpu\")");
    }
    const auto& cache = table->options.cache;
    step->may_begin = step->may_begin && cache && cache->sync().MayBeginEarly();
    step->cached = step->cached || (remote && cache);
  }
  step->tables.assign(call.tables.begin(), call.tables.end());
  step->SetIds(call.features);
  // Only on this thread: the pool belongs to the lookups.
  ThreadPool only_this(1);
  const std::vector<uint64_t> tables = call.TableIds();
  const PartitionId store = parts_->store.transport->id(0);
  step->plan.Build(call.features, {tables.data(), tables.size()}, store, &only_this);
  if (remote) NotifyOfSmallCaches(call, step->plan);
  if (all != nullptr && all->ends[0].size() > 1) {
    {
      const std::lock_guard<std::mutex> lock(global_mutex_);
      step->global = std::make_shared<const GlobalStep>(*all, tables, store, &global_scratch_);
    }
    step->place = all->place;
    AddLayer(call, step->may_begin);
  }
  coming_.Add(call.layer, window, std::move(step));
  parts_->driver.OnPlanned();
  return Status();
}

void Window::NotifyOfSmallCaches(const BatchCall& call, const BatchPlan& plan) {
  std::vector<size_t> rows(call.tables.size());
  for (const BatchPlan::Group& group : plan.groups()) rows[group.table] += group.uniques;
  for (size_t t = 0; t < rows.size(); ++t) {
    const auto& cache = call.tables[t]->options.cache;
    const bool small = cache && cache->capacity > 0 && rows[t] > cache->capacity;
    if (!small || !parts_->notice || call.tables[t]->notified_small.exchange(true)) continue;
    parts_->notice(
        "a batch has " + std::to_string(rows[t]) + " rows of table '" + call.tables[t]->name() +
        "', whose cache holds " + std::to_string(cache->capacity) +
        ": rows leave it before they are used again. Give the layer het_tf.Cache(rows=...) that holds "
        "several batches");
  }
}

void Window::NotifyOfUnplanned(const BatchCall& call) {
  parts_->notice("the last " + std::to_string(ComingSteps::kTellAfter) + " lookups of table '" +
                 call.tables[0]->name() +
                 "' were of other ids than het_tf.lookahead has planned, and gained nothing by it. Plan what "
                 "the layer is called on: het_tf.lookahead(..., inputs=) says where the ids are");
}

Status Window::Begin(StepCall* step, bool training) {
  const BatchCall& call = step->call;
  if (!training) return BeginStep(step, 0, nullptr, false);
  ComingSteps::Found found = coming_.Peek(call.layer, call.features);
  // A refused lookup takes no plan.
  HET_RETURN_IF_ERROR(BeginStep(step, found.place, std::move(found.global), true));
  found = coming_.Match(call.layer, call.features, step->step);
  step->planned = found.planned;
  step->planned_step = found.planned_step;
  step->number = found.number != 0 ? found.number : steps_->Reserve();
  for (size_t t = 0; found.planned && t < call.tables.size(); ++t) call.tables[t]->planned.fetch_add(1);
  if (found.tell && parts_->notice) NotifyOfUnplanned(call);
  const std::lock_guard<std::mutex> lock(mutex_);
  Layer* const layer = Find(call.layer);
  if (layer != nullptr) layer->number = step->number;
  return Status();
}

bool Window::Work(Client* client) {
  bool any = false;
  for (uint64_t number : coming_.TakeLeft()) client->EndLookup(number);
  const auto begin = [client](PlannedStep* step) {
    CachedRead read;
    for (const BatchPlan::Group& group : step->plan.groups()) {
      const uint64_t table = step->tables[group.table]->schema->id();
      if (group.entries == 0) continue;
      if (!client->HasTable(table)) return;  // the lookup reports it
      read.parts.push_back({table, group.partition, group.uniques, step->plan.keys(group),
                            step->plan.hashes(group), step->plan.rows(group), nullptr});
    }
    client->ReadEarly(&read, step->number);
  };
  try {
    for (const NextUses::Late& late : coming_.TakeLate())
      client->SetNextUse(late.table, late.key, late.hash, late.number);
    while (!client->asking() && coming_.BeginNext(begin)) any = true;
  } catch (const std::bad_alloc&) {  // the lookup reads the rows
  }
  return any;
}

}  // namespace het
