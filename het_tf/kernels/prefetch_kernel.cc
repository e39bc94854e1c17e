// HetPrefetch: rows of a batch whose lookup will come, fetched while the batch before it is computed.
#include <algorithm>
#include <new>

#include "het_tf/core/engine/engine.h"
#include "het_tf/kernels/id_inputs.h"

namespace het {
namespace {

class PrefetchKernel {
 public:
  static Result<std::unique_ptr<PrefetchKernel>> Create(TF_OpKernelConstruction* context) {
    auto kernel = std::make_unique<PrefetchKernel>();
    HET_ASSIGN_OR_RETURN(kernel->spec_, GetCallSpec(context));
    HET_ASSIGN_OR_RETURN(const int32_t check_ahead, GetIntAttr(context, "check_ahead"));
    kernel->check_ahead_ = static_cast<uint32_t>(std::max(check_ahead, 0));
    return kernel;
  }

  // Inputs: ids * N. Of trouble with the tables the lookup tells, in the step that needs them.
  Status Compute(TF_OpKernelContext* context) {
    HET_ASSIGN_OR_RETURN(const IdInputs inputs, GetIdInputs(context, *spec_, 0));
    if (FindEngine(spec_->name_space()) == nullptr) return Status();  // Resolve would connect
    try {
      const auto resolved = spec_->Resolve();
      if (!resolved.ok()) return Status();
      return resolved.value().engine->Prefetch({*resolved.value().tables, inputs.features}, check_ahead_);
    } catch (const std::bad_alloc&) {
      return Status();  // the lookup will say so, if it is still true then
    }
  }

 private:
  std::unique_ptr<CallSpec> spec_;
  uint32_t check_ahead_ = 0;
};

const bool prefetch_registered = (RegisterCpuKernel<PrefetchKernel>("HetPrefetch"), true);

}  // namespace
}  // namespace het
