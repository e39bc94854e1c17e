// HetApplyGrad: the gradient of HetLookup, which updates rows. HetApplyCount: the step of a schedule.
#include <limits>

#include "het_tf/kernels/gradient_inputs.h"

namespace het {
namespace {

class ApplyGradKernel {
 public:
  static Result<std::unique_ptr<ApplyGradKernel>> Create(TF_OpKernelConstruction* context) {
    auto kernel = std::make_unique<ApplyGradKernel>();
    HET_ASSIGN_OR_RETURN(kernel->spec_, GetCallSpec(context));
    return kernel;
  }

  // Inputs: ids * N, grads * N, token, learning_rates, scale, loss_scale. Output: anchor_grad.
  Status Compute(TF_OpKernelContext* context) {
    const int n = static_cast<int>(spec_->features().size());
    HET_ASSIGN_OR_RETURN(auto resolved, spec_->Resolve());
    HET_ASSIGN_OR_RETURN(auto inputs, GetGradientInputs(context, *spec_, resolved, 2 * n + 2));
    TfTensor rates_tensor;
    HET_ASSIGN_OR_RETURN(auto rates, GetLearningRates(context, *spec_, 2 * n + 1, &rates_tensor));
    ApplyArgs args = inputs.args();
    args.learning_rates = rates;
    bool skipped = false;
    HET_RETURN_IF_ERROR(resolved.engine->steps().Apply(inputs.call(resolved), args, &skipped));
    return SetScalar<float>(context, 0, TF_FLOAT, skipped ? std::numeric_limits<float>::quiet_NaN() : 0.0f);
  }

 private:
  std::unique_ptr<CallSpec> spec_;
};

class ApplyCountKernel {
 public:
  static Result<std::unique_ptr<ApplyCountKernel>> Create(TF_OpKernelConstruction* context) {
    auto kernel = std::make_unique<ApplyCountKernel>();
    HET_ASSIGN_OR_RETURN(kernel->spec_, GetCallSpec(context));
    return kernel;
  }

  Status Compute(TF_OpKernelContext* context) {
    HET_ASSIGN_OR_RETURN(auto resolved, spec_->Resolve());
    const std::vector<TablePtr>& tables = *resolved.tables;
    const int64_t shape[] = {static_cast<int64_t>(tables.size())};
    HET_ASSIGN_OR_RETURN(auto counts, NewOutput(context, 0, TF_INT64, {shape, 1}, sizeof(int64_t)));
    int64_t* out = static_cast<int64_t*>(TF_TensorData(counts.get()));
    for (const TablePtr& table : tables) *out++ = table->applies.load();
    return Status();
  }

 private:
  std::unique_ptr<CallSpec> spec_;
};

const bool apply_registered = (RegisterCpuKernel<ApplyGradKernel>("HetApplyGrad"),
                               RegisterCpuKernel<ApplyCountKernel>("HetApplyCount"), true);

}  // namespace
}  // namespace het
