// HetPlan: a batch whose lookup will come, sorted out and asked for while the batches before it are computed.
#include <algorithm>
#include <new>

#include "het_tf/core/engine/engine.h"
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
    return kernel;
  }

  // Inputs: ids * N. Of trouble with the tables the lookup tells, in the step that needs them.
  Status Compute(TF_OpKernelContext* context) {
    HET_ASSIGN_OR_RETURN(const IdInputs inputs, GetIdInputs(context, *spec_, 0));
    if (FindEngine(spec_->name_space()) == nullptr) return Status();  // Resolve would connect
    try {
      const auto resolved = spec_->Resolve();
      if (!resolved.ok()) return Status();
      return resolved.value().engine->Plan({*resolved.value().tables, inputs.features, spec_->signature()},
                                           window_);
    } catch (const std::bad_alloc&) {
      return Status();  // the lookup will say so, if it is still true then
    }
  }

 private:
  std::unique_ptr<CallSpec> spec_;
  size_t window_ = 1;
};

const bool plan_registered = (RegisterCpuKernel<PlanKernel>("HetPlan"), true);

}  // namespace
}  // namespace het
