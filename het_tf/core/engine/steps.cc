#include "het_tf/core/engine/steps.h"

#include <algorithm>
#include <string>
#include <vector>

#include "het_tf/core/base/interrupt.h"
#include "het_tf/core/plan/gradient_sums.h"
#include "het_tf/core/plan/row_ops.h"

namespace het {
namespace {

Status CheckIds(const BatchCall& call) {
  size_t ids = 0;
  for (const FeatureIds& feature : call.features) ids += feature.ids.size();
  if (ids <= BatchPlan::kMaxIds) return Status();
  return InvalidArgument("a lookup of " + std::to_string(ids) + " ids; at most " +
                         std::to_string(BatchPlan::kMaxIds) + " fit into one call. Use a smaller batch");
}

// Releases the rows of a training step, unless Dismiss was called.
class Releaser {
 public:
  Releaser(const Backends* backends, uint64_t number) : backends_(backends), number_(number) {}
  ~Releaser() {
    if (number_ == 0) return;
    for (const auto& backend : *backends_) backend->End(number_);
  }
  void Dismiss() { number_ = 0; }

 private:
  const Backends* const backends_;
  uint64_t number_;
};

}  // namespace

Result<bool> Steps::OnDevice(const BatchCall& call) {
  const TablePtr* there = nullptr;
  const TablePtr* here = nullptr;
  for (const TablePtr& table : call.tables) (table->options.on_device() ? there : here) = &table;
  if (there != nullptr && here != nullptr) {
    return InvalidArgument("one call has table '" + (*there)->name() +
                           "', whose cache is in GPU memory, and table '" + (*here)->name() +
                           "', which has none there; give all of them one het_tf.Cache(device=...)");
  }
  if (there == nullptr && call.memory.on_device) {
    return InvalidArgument("table '" + call.tables[0]->name() +
                           "' has no cache in GPU memory, but its op runs there; place it on the CPU");
  }
  return there != nullptr;
}

void Steps::SetThreads(size_t threads) {
  std::lock_guard<std::mutex> apply(apply_mutex_);
  std::unique_lock<std::shared_mutex> lock(pool_mutex_);
  if (threads != pool_->threads()) pool_ = std::make_unique<ThreadPool>(threads);
}

Status Steps::Lookup(const BatchCall& call, Span<float* const> out, uint64_t* token) {
  const Interrupts interrupts(Interrupts::By::kOp, parts_->remote());
  const TraceScope whole(&parts_->trace, TraceKind::kLookup);
  HET_RETURN_IF_ERROR(CheckIds(call));
  HET_ASSIGN_OR_RETURN(const bool on_device, OnDevice(call));
  if (token != nullptr) parts_->kept.DropApplied(call.layer);
  StepStore::StepPtr plan = on_device ? StepStore::StepPtr() : parts_->step_store.New();
  StepCall step{call, 0, nullptr, plan.get()};
  HET_RETURN_IF_ERROR(token != nullptr ? Number(&step) : parts_->on_demand.Begin(&step, {}, false));
  return Read(&step, std::move(plan), out, token);
}

Status Steps::Read(StepCall* step, StepStore::StepPtr plan, Span<float* const> out, uint64_t* token) {
  const BatchCall& call = step->call;
  Releaser releaser(&parts_->backends, step->number);
  const std::shared_lock<std::shared_mutex> pool_lock(pool_mutex_);
  step->pool = pool_.get();
  HET_RETURN_IF_ERROR(parts_->RefuseWhileLoading());
  if (plan != nullptr) {
    const TraceScope planning(&parts_->trace, TraceKind::kPlan);
    if (!step->planned) plan->Scatter(call, parts_->store.transport->id(0), pool_.get());
    plan->PrepareRows();
    plan->PrepareValues(call);
    for (size_t f = 0; f < out.size(); ++f) {
      ZeroPadding(call.features[f], call.tables[call.features[f].table]->schema->dim(), out[f]);
    }
  }
  HET_RETURN_IF_ERROR(
      parts_->backends.ForCall(call, [&](TableBackend* backend) { return backend->Lookup(step, out); }));
  if (token == nullptr) return Status();
  const uint64_t let_go = parts_->step_store.Remember(step->number, std::move(plan));
  releaser.Dismiss();
  *token = step->number;
  if (let_go == 0) return Status();
  for (const auto& backend : parts_->backends) backend->Release(let_go);
  return Status();
}

// Sets the number of a training lookup, and its plan if there is one.
Status Steps::Number(StepCall* step) {
  ComingSteps::Found found;
  if (step->step != nullptr) found = parts_->coming.Peek(step->call.layer, step->call.features);
  // A refused lookup takes no plan.
  HET_RETURN_IF_ERROR(parts_->on_demand.Begin(step, found, true));
  if (step->step != nullptr) found = parts_->coming.Match(step->call.layer, step->call.features, step->step);
  step->planned = found.planned;
  step->planned_step = found.planned_step;
  step->number = found.number != 0 ? found.number : parts_->step_store.Reserve();
  parts_->on_demand.SetNumber(step->call.layer, step->number);
  if (found.planned) {
    for (const TablePtr& table : step->call.tables) table->planned.fetch_add(1);
  }
  if (found.tell && parts_->notice) TellUnplanned(step->call);
  return Status();
}

void Steps::TellUnplanned(const BatchCall& call) {
  parts_->notice(
      "the last " + std::to_string(ComingSteps::kTellAfter) + " lookups of table '" + call.tables[0]->name() +
      "' were of other ids than het_tf.lookahead has planned, and gained nothing by it. Plan what the layer is "
      "called on: het_tf.lookahead(..., inputs=) says where the ids are");
}

Status Steps::Tick(StepCall* step, const ApplyArgs& args) {
  const BatchCall& call = step->call;
  if (step->step != nullptr) HET_RETURN_IF_ERROR(Prepare(step));
  step->others = parts_->on_demand.BeforeTick(call.layer);
  Status status =
      parts_->backends.ForCall(call, [&](TableBackend* backend) { return backend->Tick(step, args); });
  if (status.ok()) status = parts_->on_demand.EndStep(call.layer);
  if (!parts_->remote()) parts_->store.service->SweepNext();
  for (size_t t = 0; t < step->changed.size(); ++t) call.tables[t]->applies.fetch_add(step->changed[t]);
  return status;
}

void Steps::EndLookups(const std::vector<KeptGradients::Chosen>& chosen) {
  for (const KeptGradients::Chosen& one : chosen) {
    for (const auto& backend : parts_->backends) backend->End(one.gradient->number);
  }
}

Result<std::vector<uint32_t>> Steps::TablesOf(const KeptCall& call, const KeptGradient& gradient) {
  std::vector<uint32_t> numbers;
  for (size_t t = 0; t < gradient.tables.size(); ++t) {
    const auto at = std::find(call.tables.begin(), call.tables.end(), gradient.tables[t]);
    const bool of_call = gradient.variables[t] == call.variable;
    if (of_call && at == call.tables.end()) return TableIsGone(*gradient.tables[t]);
    numbers.push_back(of_call ? static_cast<uint32_t>(at - call.tables.begin()) : GradientSums::kNoTable);
  }
  return numbers;
}

Status Steps::Prepare(StepCall* step) {
  const BatchCall& call = step->call;
  const auto undo = [&] {
    static_cast<void>(parts_->backends.ForCall(call, [step](TableBackend* backend) {
      backend->Undo(step);
      return Status();
    }));
  };
  try {
    const Status status =
        parts_->backends.ForCall(call, [step](TableBackend* backend) { return backend->Prepare(step); });
    if (!status.ok()) undo();
    HET_RETURN_IF_ERROR(status);
  } catch (...) {
    undo();
    throw;
  }
  step->changed.assign(call.tables.size(), 0);
  for (size_t f = 0; f < call.features.size(); ++f) {
    if (step->step->active[f]) step->changed[call.features[f].table] = 1;
  }
  return Status();
}

Step* Steps::BuildPlan(const BatchCall& call, StepStore::StepPtr* plan) {
  if (*plan == nullptr) {
    *plan = parts_->step_store.New();
    (*plan)->Build(call, parts_->store.transport->id(0), pool_.get());
  }
  return plan->get();
}

Status Steps::ApplySums(Span<const TablePtr> tables, uint64_t layer, const MergedSums& sums,
                        Span<const float> learning_rates) {
  const Interrupts interrupts(Interrupts::By::kOp, parts_->remote());
  Vector<FeatureIds> features;
  Vector<const float*> gradients;
  Vector<uint8_t> active;
  for (uint32_t t = 0; t < tables.size(); ++t) {
    const MergedSums::OfTable& table = sums.tables[t];
    features.push_back({t, Span<const int64_t>(table.keys.data(), table.keys.size()), {}});
    gradients.push_back(table.sums.data());
    active.push_back(table.active);
  }
  BatchCall call{tables, Span<const FeatureIds>(features.data(), features.size())};
  ApplyArgs args;
  // A lookup within the step, of the keys that are updated here.
  const TraceScope whole(&parts_->trace, TraceKind::kUpdate);
  HET_RETURN_IF_ERROR(CheckIds(call));
  StepStore::StepPtr plan = parts_->step_store.New();
  StepCall step{call, parts_->step_store.Reserve(), nullptr, plan.get()};
  HET_RETURN_IF_ERROR(Read(&step, std::move(plan), {}, &args.token));
  args.gradients = Span<const float* const>(gradients.data(), gradients.size());
  args.learning_rates = learning_rates;
  args.active = Span<const uint8_t>(active.data(), active.size());
  call.layer = layer;
  HET_ASSIGN_OR_RETURN(plan, parts_->step_store.Take(args.token));
  Releaser releaser(&parts_->backends, args.token);
  const std::lock_guard<std::mutex> apply_lock(apply_mutex_);
  HET_RETURN_IF_ERROR(parts_->RefuseWhileLoading());
  StepCall tick{call, args.token, pool_.get(), BuildPlan(call, &plan)};
  if (!tick.step->FindActive(call, args)) return parts_->on_demand.SkipStep(layer);
  HET_RETURN_IF_ERROR(tick.step->SumGradients(call, args, pool_.get()));
  const Status status = Tick(&tick, args);
  if (status.ok()) releaser.Dismiss();
  return status;
}

Status Steps::Plan(const BatchCall& call, size_t window, const GlobalStep::Ids* all) {
  HET_RETURN_IF_ERROR(CheckIds(call));
  std::unique_ptr<PlannedStep> step = parts_->coming.New();
  step->may_begin = parts_->remote();
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
    step->cached = step->cached || (parts_->remote() && cache);
  }
  step->tables.assign(call.tables.begin(), call.tables.end());
  step->SetIds(call.features);
  // Only on this thread: the pool belongs to the lookups.
  ThreadPool only_this(1);
  const std::vector<uint64_t> tables = call.TableIds();
  step->plan.Build(call.features, {tables.data(), tables.size()}, parts_->store.transport->id(0), &only_this);
  if (parts_->remote()) TellSmallCaches(call, step->plan);
  if (all != nullptr && all->ends[0].size() > 1) {
    step->global = GlobalOf(call, *all);
    step->place = all->place;
    parts_->on_demand.Plan(call, step->may_begin);
  }
  parts_->coming.Add(call.layer, window, std::move(step));
  parts_->driver.OnPlanned();
  return Status();
}

void Steps::TellSmallCaches(const BatchCall& call, const BatchPlan& plan) {
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

std::shared_ptr<const GlobalStep> Steps::GlobalOf(const BatchCall& call, const GlobalStep::Ids& all) {
  const std::lock_guard<std::mutex> lock(global_mutex_);
  return std::make_shared<const GlobalStep>(all, call.TableIds(), parts_->store.transport->id(0),
                                            &global_scratch_);
}

std::unique_lock<std::mutex> Steps::LockRowNumbers() {
  return parts_->remote() ? std::unique_lock<std::mutex>() : std::unique_lock<std::mutex>(apply_mutex_);
}

void Steps::Pause(const std::function<void()>& fn) {
  const std::lock_guard<std::mutex> apply_lock(apply_mutex_);
  const auto changes = parts_->catalog.LockChanges();
  const std::unique_lock<std::shared_mutex> pool_lock(pool_mutex_);
  fn();
}

}  // namespace het
