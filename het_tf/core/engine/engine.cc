#include "het_tf/core/engine/engine.h"

#include <algorithm>

#include "het_tf/core/engine/cached_backend.h"
#include "het_tf/core/engine/device_backend.h"
#include "het_tf/core/engine/direct_backend.h"
#include "het_tf/core/plan/gradient_sums.h"
#include "het_tf/core/plan/row_ops.h"
#include "het_tf/core/store/local_store.h"
#include "het_tf/core/store/local_transport.h"

namespace het {
namespace {

ClientConfig EmbeddedConfig() {
  ClientConfig config;
  config.fail_out_of_memory = true;
  return config;
}

ClientConfig Traced(ClientConfig config, TraceLog* trace) {
  config.trace = trace;
  return config;
}

EngineStore EmbeddedStore(TimeFn time) {
  EngineStore store;
  store.service = std::make_unique<LocalService>(LocalService::kDefaultPartitions, 0, std::move(time));
  store.tables = std::make_unique<LocalStore>(store.service.get());
  store.transport = std::make_unique<LocalTransport>(store.service.get());
  return store;
}

Status CheckIds(const BatchCall& call) {
  size_t ids = 0;
  for (const FeatureIds& feature : call.features) ids += feature.ids.size();
  if (ids <= BatchPlan::kMaxIds) return Status();
  return InvalidArgument("a lookup of " + std::to_string(ids) + " ids; at most " +
                         std::to_string(BatchPlan::kMaxIds) + " fit into one call. Use a smaller batch");
}

const std::string& NameOf(const TablePtr& table) { return table->schema->spec().name; }

// Whether the tables of a call are on a device. InvalidArgument: some are, or none is and its ids
// are there.
Result<bool> OnDevice(const BatchCall& call, const CallMemory& memory) {
  const TablePtr* there = nullptr;
  const TablePtr* here = nullptr;
  for (const TablePtr& table : call.tables) (table->options.on_device() ? there : here) = &table;
  if (there != nullptr && here != nullptr) {
    return InvalidArgument("one call has table '" + NameOf(*there) +
                           "', whose cache is in GPU memory, and table '" + NameOf(*here) +
                           "', which has none there; give all of them one het_tf.Cache(device=...)");
  }
  if (there == nullptr && memory.on_device) {
    return InvalidArgument("table '" + NameOf(call.tables[0]) +
                           "' has no cache in GPU memory; its ids are to be in host memory");
  }
  return there != nullptr;
}

}  // namespace

// Lets the rows of a training step go, unless Dismiss has said that they are wanted.
class Engine::Releaser {
 public:
  Releaser(Engine* engine, uint64_t number) : engine_(engine), number_(number) {}
  ~Releaser() {
    if (number_ == 0) return;
    for (const auto& backend : engine_->backends_) backend->End(number_);
  }
  void Dismiss() { number_ = 0; }

 private:
  Engine* const engine_;
  uint64_t number_;
};

Engine::Engine(std::string name, size_t threads, TimeFn time)
    : Engine(std::move(name), threads, EmbeddedStore(std::move(time)), EmbeddedConfig()) {}

Engine::Engine(std::string name, size_t threads, std::unique_ptr<TableStore> store,
               std::unique_ptr<Transport> transport, const ClientConfig& config)
    : Engine(std::move(name), threads, EngineStore{nullptr, std::move(store), std::move(transport)}, config) {
}

Engine::Engine(std::string name, size_t threads, EngineStore store, const ClientConfig& config)
    : name_(std::move(name)),
      store_(std::move(store)),
      notice_(config.notice),
      coming_(&steps_),
      driver_(store_.transport.get(), Traced(config, &trace_), remote(), &coming_),
      on_demand_(&driver_, &coming_),
      catalog_(name_),
      loader_(name_, store_.tables.get(), remote(),
              [this](const std::function<void()>& fn) {
                const std::lock_guard<std::mutex> apply_lock(apply_mutex_);
                const auto changes = catalog_.LockChanges();
                const std::unique_lock<std::shared_mutex> pool_lock(pool_mutex_);
                fn();
              }),
      pool_(std::make_unique<ThreadPool>(threads)) {
  if (!remote()) backends_.push_back(std::make_unique<DirectBackend>(store_.service.get()));
  // A device's pushes are flushed by the cache's backend, so it comes first.
  auto device = std::make_unique<DeviceBackend>(&driver_, store_.transport->id(0));
  device_ = device.get();
  backends_.push_back(std::move(device));
  backends_.push_back(std::make_unique<CachedBackend>(&driver_));
}

// The client calls the device's tables back.
Engine::~Engine() { driver_.Stop(); }

DeviceTables* Engine::device() { return device_->tables(); }

void Engine::SetThreads(size_t threads) {
  std::lock_guard<std::mutex> apply(apply_mutex_);
  std::unique_lock<std::shared_mutex> lock(pool_mutex_);
  if (threads != pool_->threads()) pool_ = std::make_unique<ThreadPool>(threads);
}

TableBackend& Engine::BackendOf(const TableOptions& options) {
  return **std::find_if(backends_.begin(), backends_.end(),
                        [&](const auto& backend) { return backend->Serves(options); });
}

// fn(backend) -> Status for every backend that a call has tables of, until one fails.
template <typename Fn>
Status Engine::ForBackends(const BatchCall& call, Fn fn) {
  for (const auto& backend : backends_) {
    const bool named = std::any_of(call.tables.begin(), call.tables.end(),
                                   [&](const TablePtr& table) { return backend->Serves(table->options); });
    if (named) HET_RETURN_IF_ERROR(fn(backend.get()));
  }
  return Status();
}

// --- steps

Status Engine::Lookup(const BatchCall& call, Span<float* const> out, uint64_t* token) {
  return Lookup(call, CallMemory(), out, token);
}

Status Engine::LookupOnDevice(const BatchCall& call, Span<float* const> out, void* stream, uint64_t* token) {
  return Lookup(call, CallMemory{true, stream}, out, token);
}

Status Engine::Lookup(const BatchCall& call, const CallMemory& memory, Span<float* const> out,
                      uint64_t* token) {
  const TraceScope whole(&trace_, TraceKind::kLookup);
  HET_RETURN_IF_ERROR(CheckIds(call));
  HET_ASSIGN_OR_RETURN(const bool on_device, OnDevice(call, memory));
  StepStore::StepPtr plan = on_device ? StepStore::StepPtr() : steps_.New();
  StepCall step{call, memory, 0, nullptr, plan.get()};
  if (token != nullptr) HET_RETURN_IF_ERROR(Number(&step));
  Releaser releaser(this, step.number);
  const std::shared_lock<std::shared_mutex> pool_lock(pool_mutex_);
  step.pool = pool_.get();
  HET_RETURN_IF_ERROR(loader_.RefuseWhileLoading());
  if (plan != nullptr) {
    const TraceScope planning(&trace_, TraceKind::kPlan);
    if (!step.planned) plan->Scatter(call, store_.transport->id(0), pool_.get());
    plan->PrepareRows();
    plan->PrepareValues(call);
    for (size_t f = 0; f < out.size(); ++f) {
      ZeroPadding(call.features[f], call.tables[call.features[f].table]->schema->dim(), out[f]);
    }
  }
  HET_RETURN_IF_ERROR(ForBackends(call, [&](TableBackend* backend) { return backend->Lookup(&step, out); }));
  if (token == nullptr) return Status();
  const uint64_t let_go = steps_.Remember(step.number, std::move(plan));
  releaser.Dismiss();
  *token = step.number;
  if (let_go == 0) return Status();
  for (const auto& backend : backends_) backend->Release(let_go);
  return Status();
}

// The number of a training lookup, and its plan if there is one.
Status Engine::Number(StepCall* step) {
  ComingSteps::Found found;
  if (step->step != nullptr) found = coming_.Match(step->call.layer, step->call.features, step->step);
  step->planned = found.planned;
  step->planned_step = found.planned_step;
  step->number = found.number != 0 ? found.number : steps_.Reserve();
  if (found.planned) {
    for (const TablePtr& table : step->call.tables) table->planned.fetch_add(1);
  }
  if (found.tell && notice_) TellUnplanned(step->call);
  return on_demand_.BeginStep(step->call, found);
}

void Engine::TellUnplanned(const BatchCall& call) {
  notice_(
      "the last " + std::to_string(ComingSteps::kTellAfter) + " lookups of table '" + NameOf(call.tables[0]) +
      "' were of other ids than het_tf.plan has planned, and gained nothing by it. Plan what the layer is "
      "called on: het_tf.plan(..., inputs=) says where the ids are");
}

Status Engine::Apply(const BatchCall& call, const ApplyArgs& args, bool* skipped) {
  return Apply(call, CallMemory(), args, skipped);
}

Status Engine::ApplyOnDevice(const BatchCall& call, const ApplyArgs& args, void* stream, bool* skipped) {
  return Apply(call, CallMemory{true, stream}, args, skipped);
}

Status Engine::Apply(const BatchCall& call, const CallMemory& memory, const ApplyArgs& args, bool* skipped) {
  const TraceScope whole(&trace_, TraceKind::kUpdate);
  *skipped = false;
  HET_ASSIGN_OR_RETURN(StepStore::StepPtr plan, steps_.Consume(args.token));
  Releaser releaser(this, args.token);
  HET_ASSIGN_OR_RETURN(const bool on_device, OnDevice(call, memory));
  const std::lock_guard<std::mutex> apply_lock(apply_mutex_);
  HET_RETURN_IF_ERROR(loader_.RefuseWhileLoading());
  StepCall step{call, memory, args.token, pool_.get()};
  if (!on_device) {
    step.step = BuildPlan(call, &plan);
    if (!step.step->FindActive(call, args)) return on_demand_.SkipStep(call.layer);
    {
      const TraceScope summing(&trace_, TraceKind::kSum);
      HET_RETURN_IF_ERROR(step.step->SumGradients(call, args, pool_.get(), &step.skipped));
    }
    *skipped = step.skipped;
    if (step.skipped) return on_demand_.SkipStep(call.layer);
    HET_RETURN_IF_ERROR(Prepare(&step));
  }
  step.others = on_demand_.BeforeTick(call.layer);
  Status status = ForBackends(call, [&](TableBackend* backend) { return backend->Tick(&step, args); });
  if (status.ok()) status = on_demand_.EndStep(call.layer);
  if (!remote()) store_.service->SweepNext();
  for (size_t t = 0; t < step.changed.size(); ++t) call.tables[t]->applies.fetch_add(step.changed[t]);
  *skipped = step.skipped;
  if (status.ok() && !step.skipped) releaser.Dismiss();
  return status;
}

Status Engine::Prepare(StepCall* step) {
  const BatchCall& call = step->call;
  const auto undo = [&] {
    static_cast<void>(ForBackends(call, [step](TableBackend* backend) {
      backend->Undo(step);
      return Status();
    }));
  };
  try {
    const Status status = ForBackends(call, [step](TableBackend* backend) { return backend->Prepare(step); });
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

Step* Engine::BuildPlan(const BatchCall& call, StepStore::StepPtr* plan) {
  if (*plan == nullptr) {
    *plan = steps_.New();
    (*plan)->Build(call, store_.transport->id(0), pool_.get());
  }
  return plan->get();
}

Status Engine::SumGradients(const BatchCall& call, const ApplyArgs& args, uint32_t workers,
                            GradientSums* sums) {
  const TraceScope whole(&trace_, TraceKind::kUpdate);
  HET_ASSIGN_OR_RETURN(StepStore::StepPtr plan, steps_.Consume(args.token));
  const Releaser releaser(this, args.token);
  const std::lock_guard<std::mutex> apply_lock(apply_mutex_);
  Step* const step = BuildPlan(call, &plan);
  static_cast<void>(step->FindActive(call, args));
  HET_RETURN_IF_ERROR(step->SumGradients(call, args, pool_.get(), &sums->skip));
  CollectSums(call, step, {workers, on_demand_.Running(call.layer)}, sums);
  return Status();
}

Status Engine::ApplySums(Span<const TablePtr> tables, uint64_t layer, const MergedSums& sums,
                         Span<const float> learning_rates) {
  if (sums.skip) return on_demand_.SkipStep(layer);
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
  HET_RETURN_IF_ERROR(Lookup(call, {}, &args.token));
  args.gradients = Span<const float* const>(gradients.data(), gradients.size());
  args.learning_rates = learning_rates;
  args.active = Span<const uint8_t>(active.data(), active.size());
  call.layer = layer;  // its lookup was this step's, and not the one above
  bool skipped = false;
  return Apply(call, args, &skipped);
}

Status Engine::Plan(const BatchCall& call, size_t window, const GlobalStep::Ids* all) {
  HET_RETURN_IF_ERROR(CheckIds(call));
  std::unique_ptr<PlannedStep> step = coming_.New();
  step->may_begin = remote();
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
    step->cached = step->cached || (remote() && cache);
  }
  step->tables.assign(call.tables.begin(), call.tables.end());
  step->SetIds(call.features);
  // On this thread alone: the pool is the lookups'.
  ThreadPool only_this(1);
  const std::vector<uint64_t> tables = call.TableIds();
  step->plan.Build(call.features, {tables.data(), tables.size()}, store_.transport->id(0), &only_this);
  if (remote()) TellSmallCaches(call, step->plan);
  if (all != nullptr) {
    step->global = GlobalOf(call, *all);
    step->place = all->place;
    on_demand_.Plan(call, step->may_begin, all->summed);
  }
  coming_.Add(call.layer, window, std::move(step));
  driver_.OnPlanned();
  return Status();
}

void Engine::TellSmallCaches(const BatchCall& call, const BatchPlan& plan) {
  std::vector<size_t> rows(call.tables.size());
  for (const BatchPlan::Group& group : plan.groups()) rows[group.table] += group.uniques;
  for (size_t t = 0; t < rows.size(); ++t) {
    const auto& cache = call.tables[t]->options.cache;
    const bool small = cache && cache->capacity > 0 && rows[t] > cache->capacity;
    if (!small || !notice_ || call.tables[t]->told_small.exchange(true)) continue;
    notice_("a batch has " + std::to_string(rows[t]) + " rows of table '" + NameOf(call.tables[t]) +
            "', whose cache holds " + std::to_string(cache->capacity) +
            ": rows leave it before they are used again. Give the layer het_tf.Cache(rows=...) that holds "
            "several batches");
  }
}

std::shared_ptr<const GlobalStep> Engine::GlobalOf(const BatchCall& call, const GlobalStep::Ids& all) {
  const std::lock_guard<std::mutex> lock(global_mutex_);
  return std::make_shared<const GlobalStep>(all, call.TableIds(), store_.transport->id(0), &global_scratch_);
}

Status Engine::Flush() {
  Status first;
  for (const auto& backend : backends_) {
    const Status status = backend->Flush();
    if (first.ok()) first = status;
  }
  if (first.ok()) on_demand_.OnFlush();
  return first;
}

Status Engine::Refresh() {
  HET_RETURN_IF_ERROR(Flush());
  ClientDriver::Lock(&driver_)->ForgetClean();
  return Status();
}

void Engine::MarkDurable() { ClientDriver::Lock(&driver_)->MarkDurable(); }

}  // namespace het
