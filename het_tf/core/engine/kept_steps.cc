// Steps::Keep and what applies the gradients that it keeps (kept_gradients.h).
#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "het_tf/core/base/interrupt.h"
#include "het_tf/core/engine/steps.h"
#include "het_tf/core/plan/gradient_sums.h"

namespace het {
namespace {

Status NotSummed(const KeptCall& call) {
  return Status(
      Code::kUnimplemented,
      "gradients of table '" + call.tables[0]->name() +
          "', whose cache is in GPU memory, are applied together with different factors, with those "
          "of a layer with other tables, or over several workers (accumulate); apply them one by "
          "one, or give the layer het_tf.Cache(device=\"cpu\"); no row was changed");
}

Status CheckLearningRates(const KeptCall& call) {
  if (call.learning_rates.size() != call.tables.size()) {
    return InvalidArgument("HetApplyGrad: " + std::to_string(call.learning_rates.size()) +
                           " learning rates for " + std::to_string(call.tables.size()) + " tables");
  }
  for (size_t t = 0; t < call.tables.size(); ++t) {
    if (std::isfinite(call.learning_rates[t])) continue;
    return InvalidArgument("HetApplyGrad: the learning rate of table '" + call.tables[t]->name() +
                           "' is not finite");
  }
  return Status();
}

}  // namespace

Status Steps::Keep(const BatchCall& call, const ApplyArgs& args, Span<const uint64_t> variables,
                   uint32_t worker, std::shared_ptr<DeviceGradient> device, float* tickets) {
  const TraceScope whole(&parts_->trace, TraceKind::kUpdate);
  HET_ASSIGN_OR_RETURN(StepStore::StepPtr plan, parts_->step_store.Take(args.token));
  HET_RETURN_IF_ERROR(parts_->backends.Check(call));
  const bool on_device = call.tables[0]->options.on_device();
  const std::lock_guard<std::mutex> apply_lock(apply_mutex_);
  const auto gradient = std::make_shared<KeptGradient>();
  gradient->number = args.token;
  gradient->layer = call.layer;
  gradient->tables.assign(call.tables.begin(), call.tables.end());
  gradient->variables.assign(variables.begin(), variables.end());
  for (const FeatureIds& feature : call.features) gradient->table_of_feature.push_back(feature.table);
  std::vector<double> squares(call.tables.size());
  if (on_device) {
    const std::string table = "table '" + call.tables[0]->name() + "'";
    if (device == nullptr) {
      return InvalidArgument(table +
                             " has its cache in GPU memory, but the op of its gradient runs on the CPU; "
                             "place it on the GPU");
    }
    squares[0] = static_cast<double>(device->norm) * device->norm;
    if (!std::isfinite(device->norm)) {
      gradient->bad = InvalidArgument("a gradient of " + table +
                                      ", or of another one of its layer, is NaN or Inf; no row was changed. "
                                      "Lower the learning rate, clip the loss, or check the inputs");
    }
  }
  gradient->on_device = std::move(device);
  if (!on_device) {
    Step* const step = BuildPlan(call, &plan);
    static_cast<void>(step->FindActive(call, args));
    const TraceScope summing(&parts_->trace, TraceKind::kSum);
    gradient->bad = step->SumGradients(call, args, pool_.get(), {squares.data(), squares.size()});
    gradient->active.assign(step->active.begin(), step->active.end());
    gradient->step = std::move(plan);
  }
  std::vector<uint64_t> seen;
  for (const uint64_t variable : variables) {
    if (std::find(seen.begin(), seen.end(), variable) != seen.end()) continue;
    seen.push_back(variable);
    double squared = 0;
    for (size_t t = 0; t < variables.size(); ++t) squared += variables[t] == variable ? squares[t] : 0;
    const KeptGradients::Given given = parts_->kept.Keep(variable, gradient, std::sqrt(squared), worker);
    std::fill_n(tickets, 2 * KeptGradients::kSlots, 0.0f);
    std::copy(given.ticket.begin(), given.ticket.end(), tickets + size_t{2} * given.slot);
    tickets += size_t{2} * KeptGradients::kSlots;
    for (const uint64_t number : given.left) {
      for (const auto& backend : parts_->backends) backend->End(number);
    }
  }
  return parts_->lookahead->EndLookup(call.layer, args.token);
}

Result<std::vector<KeptGradients::Chosen>> Steps::Choose(const KeptCall& call) {
  HET_RETURN_IF_ERROR(CheckLearningRates(call));
  std::string what = call.tables.size() == 1 ? "table" : "tables";
  for (const TablePtr& table : call.tables)
    what += (&table == call.tables.begin() ? " '" : ", '") + table->name() + "'";
  HET_ASSIGN_OR_RETURN(auto chosen, parts_->kept.Choose(call.variable, what, call.tickets));
  for (const KeptGradients::Chosen& one : chosen) {
    HET_RETURN_IF_ERROR(parts_->lookahead->CheckUpdate(one.gradient->layer, one.gradient->number, what));
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
  parts_->kept.SetApplied(call.variable, chosen);
  return Status();
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
    return parts_->lookahead->Update(gradient.layer, nullptr);
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
  const KeptGradient& newest = *chosen.back().gradient;
  std::vector<FeatureIds> features;
  std::vector<const float*> gradients;
  for (const KeptGradients::Chosen& one : chosen) {
    const KeptGradient& gradient = *one.gradient;
    const bool same =
        gradient.on_device != nullptr && one.factor == chosen[0].factor &&
        gradient.on_device->on_host == newest.on_device->on_host &&
        std::equal(gradient.tables.begin(), gradient.tables.end(), call.tables.begin(), call.tables.end());
    if (!same) return NotSummed(call);
    const DeviceGradient& there = *gradient.on_device;
    features.insert(features.end(), there.features.begin(), there.features.end());
    gradients.insert(gradients.end(), there.gradients.begin(), there.gradients.end());
  }
  const BatchCall batch{
      call.tables, features, newest.layer, {!newest.on_device->on_host, newest.on_device->stream}};
  ApplyArgs args;
  args.token = chosen.size() == 1 ? newest.number : 0;  // a plan is of one call
  args.gradients = gradients;
  args.learning_rates = call.learning_rates;
  args.scale = chosen[0].factor * call.scale;
  Step none;  // the device has the plan
  StepCall step{batch, args.token, pool_.get(), &none};
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
    if (gradient.on_device != nullptr) return NotSummed(call);
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

Result<double> Steps::NormOfKept(const KeptCall& call, double order) {
  if (!std::all_of(call.tickets.begin(), call.tickets.end(), [](float x) { return std::isfinite(x); })) {
    return std::nan("");
  }
  const std::lock_guard<std::mutex> apply_lock(apply_mutex_);
  HET_ASSIGN_OR_RETURN(
      const std::vector<KeptGradients::Chosen> chosen,
      parts_->kept.Choose(call.variable, "table '" + call.tables[0]->name() + "'", call.tickets));
  if (chosen.size() == 1 && order == 2) {  // its ticket has it
    const float* const ticket = call.tickets.data() + size_t{2} * chosen[0].slot;
    return std::hypot(ticket[0], ticket[1]);
  }
  GradientSums sums;
  SumsLayout layout;
  HET_RETURN_IF_ERROR(Gather(call, chosen, &sums, &layout));
  double norm = 0;
  for (const GradientSums::OfTable& table : sums.tables) {
    std::unordered_map<Key, std::vector<double>> total;
    for (size_t k = 0; k < table.keys.size(); ++k) {
      std::vector<double>& sum = total[table.keys[k]];
      sum.resize(table.dim);
      for (size_t d = 0; d < table.dim; ++d) sum[d] += table.sums[k * table.dim + d];
    }
    for (const auto& [key, sum] : total) {
      for (const double x : sum)
        norm = std::isinf(order) ? std::max(norm, std::abs(x)) : norm + std::pow(std::abs(x), order);
    }
  }
  return std::isinf(order) ? norm : std::pow(norm, 1 / order);
}

Status Steps::SumKept(const KeptCall& call, uint32_t workers, GradientSums* sums, SumsLayout* layout) {
  const TraceScope whole(&parts_->trace, TraceKind::kUpdate);
  const std::lock_guard<std::mutex> apply_lock(apply_mutex_);
  HET_ASSIGN_OR_RETURN(const std::vector<KeptGradients::Chosen> chosen, Choose(call));
  HET_RETURN_IF_ERROR(Gather(call, chosen, sums, layout));
  SetOwners(call.tables, parts_->store.transport->id(0), parts_->lookahead->OwnersOf(layout->layer, workers),
            sums);
  EndLookups(chosen);
  parts_->kept.SetApplied(call.variable, chosen);
  return Status();
}

}  // namespace het
