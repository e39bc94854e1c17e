// HetPlan: sorts the ids of a coming lookup and requests its rows while earlier batches are computed.
// HetEndPass: the end of a pass, for rows that travel on demand.
#include <algorithm>
#include <new>

#include "het_tf/core/engine/engine.h"
#include "het_tf/ext/streams/cc/window.h"
#include "het_tf/kernels/id_inputs.h"

namespace het {
namespace {

class PlanKernel {
 public:
  static Result<std::unique_ptr<PlanKernel>> Create(TF_OpKernelConstruction* context) {
    auto kernel = std::make_unique<PlanKernel>();
    HET_ASSIGN_OR_RETURN(kernel->spec_, GetCallSpec(context));
    HET_ASSIGN_OR_RETURN(const int32_t window, GetIntAttr(context, "window"));
    kernel->window_ = static_cast<size_t>(std::max(window, 1));
    HET_ASSIGN_OR_RETURN(const int32_t of_all, GetIntAttr(context, "M"));
    kernel->on_demand_ = of_all > 0;
    HET_ASSIGN_OR_RETURN(const int32_t worker, GetIntAttr(context, "worker"));
    kernel->worker_ = static_cast<uint32_t>(std::max(worker, 0));
    HET_ASSIGN_OR_RETURN(kernel->summed_, GetBoolAttr(context, "summed"));
    return kernel;
  }

  // Inputs: ids * N, and if rows travel on demand all * N, ends * N; place. Table errors are reported by the
  // lookup, in the step that needs the tables.
  Status Compute(TF_OpKernelContext* context) {
    HET_ASSIGN_OR_RETURN(const IdInputs inputs, GetIdInputs(context, *spec_, 0));
    if (FindEngine(spec_->name_space()) == nullptr) return Status();  // Resolve would connect
    try {
      const auto resolved = spec_->Resolve();
      if (!resolved.ok()) return Status();
      const BatchCall call{*resolved.value().tables, inputs.features, spec_->signature()};
      Window& window = Window::Of(resolved.value().engine->lookahead());
      return on_demand_ ? PlanOnDemand(context, call, &window) : window.Plan(call, window_);
    } catch (const std::bad_alloc&) {
      return Status();  // the lookup reports the error if it persists
    }
  }

 private:
  Status PlanOnDemand(TF_OpKernelContext* context, const BatchCall& call, Window* window) {
    const int n = static_cast<int>(spec_->features().size());
    HET_ASSIGN_OR_RETURN(const IdInputs all, GetIdInputs(context, *spec_, n));
    HET_ASSIGN_OR_RETURN(const IdInputs ends, GetIdInputs(context, *spec_, 2 * n));
    HET_ASSIGN_OR_RETURN(const auto place, GetInput(context, 3 * n));
    const int64_t number = *static_cast<const int64_t*>(TF_TensorData(place.get()));
    GlobalStep::Ids step{all.features, {}, static_cast<uint64_t>(number), worker_, summed_};
    for (int f = 0; f < n; ++f) {
      const Span<const int64_t> of = ends.features[f].ids;
      const auto count = static_cast<int64_t>(all.features[f].ids.size());
      if (of.size() <= worker_ || of[of.size() - 1] != count || !std::is_sorted(of.begin(), of.end())) {
        return InvalidArgument("HetPlan: the ends of feature " + std::to_string(f) +
                               " do not take its ids apart by worker");
      }
      step.ends.push_back(of);
    }
    return window->Plan(call, window_, &step);
  }

  std::unique_ptr<CallSpec> spec_;
  size_t window_ = 1;
  bool on_demand_ = false;
  uint32_t worker_ = 0;
  bool summed_ = false;
};

class EndPassKernel {
 public:
  static Result<std::unique_ptr<EndPassKernel>> Create(TF_OpKernelConstruction* context) {
    auto kernel = std::make_unique<EndPassKernel>();
    HET_ASSIGN_OR_RETURN(kernel->spec_, GetCallSpec(context));
    return kernel;
  }

  Status Compute(TF_OpKernelContext* context) {
    HET_ASSIGN_OR_RETURN(const auto place, GetInput(context, 0));
    const std::shared_ptr<Engine> engine = FindEngine(spec_->name_space());
    const auto number = static_cast<uint64_t>(*static_cast<const int64_t*>(TF_TensorData(place.get())));
    if (engine != nullptr) Window::Of(engine->lookahead()).EndPass(spec_->signature(), number);
    return Status();
  }

 private:
  std::unique_ptr<CallSpec> spec_;
};

const bool plan_registered =
    (RegisterCpuKernel<PlanKernel>("HetPlan"), RegisterCpuKernel<EndPassKernel>("HetEndPass"), true);

}  // namespace
}  // namespace het
