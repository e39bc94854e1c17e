#include "het_tf/core/engine/steps.h"

#include <algorithm>
#include <vector>

#include "het_tf/core/base/interrupt.h"
#include "het_tf/core/plan/gradient_sums.h"
#include "het_tf/core/plan/row_ops.h"

namespace het {
namespace {

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
  HET_RETURN_IF_ERROR(CheckSize(call));
  HET_RETURN_IF_ERROR(parts_->backends.Check(call));
  if (token != nullptr) parts_->kept.DropApplied(call.layer);
  StepStore::StepPtr plan = parts_->step_store.New();
  StepCall step{call, 0, nullptr, plan.get()};
  HET_RETURN_IF_ERROR(parts_->lookahead->Begin(&step, token != nullptr));
  return Read(&step, std::move(plan), out, token);
}

Status Steps::Read(StepCall* step, StepStore::StepPtr plan, Span<float* const> out, uint64_t* token) {
  const BatchCall& call = step->call;
  Releaser releaser(&parts_->backends, step->number);
  const std::shared_lock<std::shared_mutex> pool_lock(pool_mutex_);
  step->pool = pool_.get();
  HET_RETURN_IF_ERROR(parts_->RefuseWhileLoading());
  {
    const TraceScope planning(&parts_->trace, TraceKind::kPlan);
    HET_RETURN_IF_ERROR(parts_->backends.ForCall(call, [&](TableBackend* backend) {
      backend->Plan(step, parts_->store.transport->id(0), out);
      return Status();
    }));
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

Status Steps::Tick(StepCall* step, const ApplyArgs& args) {
  const BatchCall& call = step->call;
  HET_RETURN_IF_ERROR(Prepare(step));
  const Status status = parts_->lookahead->Update(call.layer, [&](const OthersUse* others) {
    step->others = others;
    return parts_->backends.ForCall(call, [&](TableBackend* backend) { return backend->Tick(step, args); });
  });
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
  for (size_t f = 0; f < step->step->active.size(); ++f) {
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
  HET_RETURN_IF_ERROR(CheckSize(call));
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
  if (!tick.step->FindActive(call, args)) return parts_->lookahead->Update(layer, nullptr);
  HET_RETURN_IF_ERROR(tick.step->SumGradients(call, args, pool_.get()));
  const Status status = Tick(&tick, args);
  if (status.ok()) releaser.Dismiss();
  return status;
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
