#include "het_tf/core/engine/steps.h"

#include <algorithm>
#include <cmath>
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

const std::string& NameOf(const TablePtr& table) { return table->schema->spec().name; }

// Whether the tables of a call are on a device. InvalidArgument: only some are, or only the ids are.
Result<bool> OnDevice(const BatchCall& call) {
  const TablePtr* there = nullptr;
  const TablePtr* here = nullptr;
  for (const TablePtr& table : call.tables) (table->options.on_device() ? there : here) = &table;
  if (there != nullptr && here != nullptr) {
    return InvalidArgument("one call has table '" + NameOf(*there) +
                           "', whose cache is in GPU memory, and table '" + NameOf(*here) +
                           "', which has none there; give all of them one het_tf.Cache(device=...)");
  }
  if (there == nullptr && call.memory.on_device) {
    return InvalidArgument("table '" + NameOf(call.tables[0]) +
                           "' has no cache in GPU memory; its ids must be in host memory");
  }
  return there != nullptr;
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
      "the last " + std::to_string(ComingSteps::kTellAfter) + " lookups of table '" + NameOf(call.tables[0]) +
      "' were of other ids than het_tf.plan has planned, and gained nothing by it. Plan what the layer is "
      "called on: het_tf.plan(..., inputs=) says where the ids are");
}

Status Steps::Apply(const BatchCall& call, const ApplyArgs& args) {
  const Interrupts interrupts(Interrupts::By::kOp, parts_->remote());
  const TraceScope whole(&parts_->trace, TraceKind::kUpdate);
  HET_ASSIGN_OR_RETURN(StepStore::StepPtr plan, parts_->step_store.Take(args.token));
  Releaser releaser(&parts_->backends, args.token);
  HET_ASSIGN_OR_RETURN(const bool on_device, OnDevice(call));
  const std::lock_guard<std::mutex> apply_lock(apply_mutex_);
  HET_RETURN_IF_ERROR(parts_->RefuseWhileLoading());
  StepCall step{call, args.token, pool_.get()};
  if (!on_device) {
    step.step = BuildPlan(call, &plan);
    if (!step.step->FindActive(call, args)) return parts_->on_demand.SkipStep(call.layer);
    const TraceScope summing(&parts_->trace, TraceKind::kSum);
    HET_RETURN_IF_ERROR(step.step->SumGradients(call, args, pool_.get()));
  }
  const Status status = Tick(&step, args);
  if (status.ok()) releaser.Dismiss();
  return status;
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

Status Steps::Keep(const BatchCall& call, const ApplyArgs& args, Span<const uint64_t> variables,
                   uint32_t worker, std::shared_ptr<DeviceGradient> device,
                   std::vector<KeptGradients::Given>* given) {
  const TraceScope whole(&parts_->trace, TraceKind::kSum);
  HET_ASSIGN_OR_RETURN(StepStore::StepPtr plan, parts_->step_store.Take(args.token));
  HET_ASSIGN_OR_RETURN(const bool on_device, OnDevice(call));
  const std::lock_guard<std::mutex> apply_lock(apply_mutex_);
  const auto gradient = std::make_shared<KeptGradient>();
  gradient->number = args.token;
  gradient->layer = call.layer;
  gradient->tables.assign(call.tables.begin(), call.tables.end());
  gradient->variables.assign(variables.begin(), variables.end());
  for (const FeatureIds& feature : call.features) gradient->table_of_feature.push_back(feature.table);
  std::vector<double> squares(call.tables.size());
  if (device != nullptr) squares[0] = static_cast<double>(device->norm) * device->norm;
  gradient->on_device = std::move(device);
  if (!on_device) {
    Step* const step = BuildPlan(call, &plan);
    static_cast<void>(step->FindActive(call, args));
    gradient->bad = step->SumGradients(call, args, pool_.get(), {squares.data(), squares.size()});
    gradient->active.assign(step->active.begin(), step->active.end());
    gradient->step = std::move(plan);
  }
  given->clear();
  std::vector<uint64_t> seen;
  for (const uint64_t variable : variables) {
    if (std::find(seen.begin(), seen.end(), variable) != seen.end()) continue;
    seen.push_back(variable);
    double squared = 0;
    for (size_t t = 0; t < variables.size(); ++t) squared += variables[t] == variable ? squares[t] : 0;
    given->push_back(kept_.Keep(variable, gradient, std::sqrt(squared), worker));
    for (const uint64_t number : given->back().left) {
      for (const auto& backend : parts_->backends) backend->End(number);
    }
  }
  return parts_->on_demand.NoteKept(call.layer, args.token);
}

Result<std::vector<KeptGradients::Chosen>> Steps::Choose(const KeptCall& call) {
  std::string what = call.tables.size() == 1 ? "table" : "tables";
  for (const TablePtr& table : call.tables)
    what += (&table == call.tables.begin() ? " '" : ", '") + NameOf(table) + "'";
  HET_ASSIGN_OR_RETURN(auto chosen, kept_.Choose(call.variable, what, call.tickets));
  for (const KeptGradients::Chosen& one : chosen) {
    HET_RETURN_IF_ERROR(parts_->on_demand.RequireRunning(one.gradient->layer, one.gradient->number, what));
  }
  return chosen;
}

Status Steps::ApplyKept(const KeptCall& call) {
  const Interrupts interrupts(Interrupts::By::kOp, parts_->remote());
  const TraceScope whole(&parts_->trace, TraceKind::kUpdate);
  std::unique_lock<std::mutex> apply_lock(apply_mutex_);
  HET_RETURN_IF_ERROR(parts_->RefuseWhileLoading());
  HET_ASSIGN_OR_RETURN(const std::vector<KeptGradients::Chosen> chosen, Choose(call));
  if (chosen.empty()) return Status();
  Status status;
  const KeptGradient& newest = *chosen.back().gradient;
  if (newest.on_device != nullptr) {
    status = ApplyOnDevice(call, chosen);
  } else if (chosen.size() == 1 && newest.step != nullptr &&
             std::all_of(newest.variables.begin(), newest.variables.end(),
                         [&](uint64_t variable) { return variable == call.variable; })) {
    status = ApplyOne(call, chosen[0]);
  } else {
    GradientSums sums;
    SumsLayout layout;
    HET_RETURN_IF_ERROR(Gather(call, chosen, &sums, &layout));
    apply_lock.unlock();
    MergedSums merged;
    for (GradientSums::OfTable& table : sums.tables) {
      merged.tables.push_back({std::move(table.keys), std::move(table.sums)});
    }
    for (size_t f = 0; f < sums.active.size(); ++f) {
      if (sums.active[f]) merged.tables[layout.table_of_feature[f]].active = true;
    }
    status = ApplySums(call.tables, layout.layer, merged, call.learning_rates);
    apply_lock.lock();
    if (status.ok()) EndLookups(chosen);
  }
  if (!status.ok()) return status;
  kept_.SetApplied(call.variable, chosen);
  return Status();
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

// The usual case: the newest gradient, of one call, whose rows were found by its lookup.
Status Steps::ApplyOne(const KeptCall& call, const KeptGradients::Chosen& chosen) {
  KeptGradient& gradient = *chosen.gradient;
  HET_ASSIGN_OR_RETURN(const std::vector<uint32_t> table_of, TablesOf(call, gradient));
  std::vector<float> rates;
  for (const uint32_t table : table_of) rates.push_back(call.learning_rates[table]);
  const auto any = [](uint8_t active) { return active != 0; };
  if (std::none_of(gradient.active.begin(), gradient.active.end(), any)) {
    EndLookups({chosen});
    return parts_->on_demand.SkipStep(gradient.layer);
  }
  Vector<FeatureIds> features;
  for (const uint32_t table : gradient.table_of_feature) features.push_back({table, {}, {}});
  const BatchCall batch{
      {gradient.tables.data(), gradient.tables.size()}, {features.data(), features.size()}, gradient.layer};
  ApplyArgs args;
  args.learning_rates = {rates.data(), rates.size()};
  args.scale = chosen.factor * call.scale;
  StepCall step{batch, gradient.number, pool_.get(), gradient.step.get()};
  return Tick(&step, args);
}

// The device sums gradients itself: all of them in one call, with one factor.
Status Steps::ApplyOnDevice(const KeptCall& call, const std::vector<KeptGradients::Chosen>& chosen) {
  std::vector<FeatureIds> features;
  std::vector<const float*> gradients;
  for (const KeptGradients::Chosen& one : chosen) {
    const KeptGradient& gradient = *one.gradient;
    const bool same =
        gradient.on_device != nullptr && one.factor == chosen[0].factor &&
        std::equal(gradient.tables.begin(), gradient.tables.end(), call.tables.begin(), call.tables.end());
    if (!same) {
      return Status(
          Code::kUnimplemented,
          "gradients of table '" + NameOf(call.tables[0]) +
              "', whose cache is in GPU memory, are applied together with different factors, or are of "
              "layers with different tables; apply them one by one, or give the layer "
              "het_tf.Cache(device=\"cpu\"); no row was changed");
    }
    const DeviceGradient& there = *gradient.on_device;
    features.insert(features.end(), there.features.begin(), there.features.end());
    gradients.insert(gradients.end(), there.gradients.begin(), there.gradients.end());
  }
  const KeptGradient& newest = *chosen.back().gradient;
  const BatchCall batch{call.tables, features, newest.layer, {true, newest.on_device->stream}};
  ApplyArgs args;
  args.token = chosen.size() == 1 ? newest.number : 0;  // a plan is of one call
  args.gradients = gradients;
  args.learning_rates = call.learning_rates;
  args.scale = chosen[0].factor * call.scale;
  StepCall step{batch, args.token, pool_.get()};
  return Tick(&step, args);
}

Status Steps::Gather(const KeptCall& call, const std::vector<KeptGradients::Chosen>& chosen,
                     GradientSums* sums, SumsLayout* layout) {
  sums->tables.resize(call.tables.size());
  for (size_t t = 0; t < call.tables.size(); ++t) {
    layout->dims.push_back(call.tables[t]->schema->dim());
    sums->tables[t].dim = layout->dims.back();
  }
  for (const KeptGradients::Chosen& one : chosen) {
    KeptGradient& gradient = *one.gradient;
    if (gradient.on_device != nullptr) {
      return Status(Code::kUnimplemented,
                    "gradients of table '" + NameOf(call.tables[0]) +
                        "', whose cache is in GPU memory, cannot be summed with others'; give the layer "
                        "het_tf.Cache(device=\"cpu\")");
    }
    HET_ASSIGN_OR_RETURN(const std::vector<uint32_t> table_of, TablesOf(call, gradient));
    if (gradient.step != nullptr) CollectSums(gradient.tables, gradient.step.get(), &gradient.sums);
    sums->Add(gradient.sums, table_of, one.factor * call.scale);
    for (const uint32_t table : gradient.table_of_feature) {
      // A feature of another variable's table does not count here.
      const bool counts = table_of[table] != GradientSums::kNoTable;
      if (!counts) sums->active[layout->table_of_feature.size()] = 0;
      layout->table_of_feature.push_back(counts ? table_of[table] : 0);
    }
    layout->signature = layout->signature * 0x9e3779b97f4a7c15 + gradient.layer;
    layout->layer = gradient.layer;
  }
  return Status();
}

Status Steps::SumKept(const KeptCall& call, uint32_t workers, GradientSums* sums, SumsLayout* layout) {
  const TraceScope whole(&parts_->trace, TraceKind::kUpdate);
  const std::lock_guard<std::mutex> apply_lock(apply_mutex_);
  HET_ASSIGN_OR_RETURN(const std::vector<KeptGradients::Chosen> chosen, Choose(call));
  HET_RETURN_IF_ERROR(Gather(call, chosen, sums, layout));
  SetOwners(call.tables, parts_->store.transport->id(0), {workers, parts_->on_demand.Running(layout->layer)},
            sums);
  EndLookups(chosen);
  kept_.SetApplied(call.variable, chosen);
  return Status();
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
  const TraceScope whole(&parts_->trace, TraceKind::kLookup);
  HET_RETURN_IF_ERROR(CheckIds(call));
  StepStore::StepPtr plan = parts_->step_store.New();
  StepCall step{call, parts_->step_store.Reserve(), nullptr, plan.get()};
  HET_RETURN_IF_ERROR(Read(&step, std::move(plan), {}, &args.token));
  args.gradients = Span<const float* const>(gradients.data(), gradients.size());
  args.learning_rates = learning_rates;
  args.active = Span<const uint8_t>(active.data(), active.size());
  call.layer = layer;
  return Apply(call, args);
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
          "table '" + NameOf(table) +
              "' is cached in GPU memory; only lookups of rows that are cached in host memory can be "
              "planned. Leave het_tf.plan out, or give the layer het_tf.Cache(device=\"cpu\")");
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
        "a batch has " + std::to_string(rows[t]) + " rows of table '" + NameOf(call.tables[t]) +
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
