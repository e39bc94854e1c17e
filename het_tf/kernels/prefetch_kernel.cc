// HetPrefetch: rows of a batch whose lookup will come, fetched while the batch before it is computed.
#include <algorithm>

#include "het_tf/kernels/id_inputs.h"

namespace het {
namespace {

class PrefetchKernel {
 public:
  static Result<std::unique_ptr<PrefetchKernel>> Create(TF_OpKernelConstruction* context) {
    auto kernel = std::make_unique<PrefetchKernel>();
    auto spec = GetCallSpec(context);
    if (!spec.ok()) return spec.status();
    kernel->spec_ = std::move(spec.value());
    const Result<int32_t> check_ahead = GetIntAttr(context, "check_ahead");
    if (!check_ahead.ok()) return check_ahead.status();
    kernel->check_ahead_ = static_cast<uint32_t>(std::max(check_ahead.value(), 0));
    return kernel;
  }

  // Inputs: ids * N. Of trouble with the tables the lookup tells, in the step that needs them.
  Status Compute(TF_OpKernelContext* context) {
    auto inputs = GetIdInputs(context, *spec_, 0);
    if (!inputs.ok()) return inputs.status();
    // It runs on a thread of the input pipeline, and the program may fork at any time.
    const NoFork no_fork;
    if (FindEngine(spec_->name_space()) == nullptr) return Status();  // Resolve would connect
    auto resolved = spec_->Resolve();
    if (!resolved.ok()) return Status();
    const BatchCall call{*resolved.value().tables, inputs.value().features};
    return resolved.value().engine->Prefetch(call, check_ahead_, no_fork);
  }

 private:
  std::unique_ptr<CallSpec> spec_;
  uint32_t check_ahead_ = 0;
};

const bool registered = (RegisterCpuKernel<PrefetchKernel>("HetPrefetch"), true);

}  // namespace
}  // namespace het
