// HetApplyGrad: the gradient of HetLookup, which is the update itself. HetApplyCount: the step of a schedule.
#include <limits>

#include "het_tf/kernels/gradient_inputs.h"

namespace het {
namespace {

class ApplyGradKernel {
 public:
  static Result<std::unique_ptr<ApplyGradKernel>> Create(TF_OpKernelConstruction* context) {
    auto kernel = std::make_unique<ApplyGradKernel>();
    auto spec = GetCallSpec(context);
    if (!spec.ok()) return spec.status();
    kernel->spec_ = std::move(spec.value());
    return kernel;
  }

  // Inputs: ids * N, grads * N, token, learning_rates, scale, loss_scale. Output: anchor_grad.
  Status Compute(TF_OpKernelContext* context) {
    const int n = static_cast<int>(spec_->features().size());
    auto resolved = spec_->Resolve();
    if (!resolved.ok()) return resolved.status();
    auto inputs = GetGradientInputs(context, *spec_, resolved.value(), 2 * n + 2);
    if (!inputs.ok()) return inputs.status();
    TfTensor rates_tensor;
    auto rates = GetLearningRates(context, *spec_, 2 * n + 1, &rates_tensor);
    if (!rates.ok()) return rates.status();
    ApplyArgs args = inputs.value().args();
    args.learning_rates = rates.value();
    bool skipped = false;
    HET_RETURN_IF_ERROR(
        resolved.value().engine->Apply(inputs.value().call(resolved.value()), args, &skipped));
    return SetScalar<float>(context, 0, TF_FLOAT, skipped ? std::numeric_limits<float>::quiet_NaN() : 0.0f);
  }

 private:
  std::unique_ptr<CallSpec> spec_;
};

class ApplyCountKernel {
 public:
  static Result<std::unique_ptr<ApplyCountKernel>> Create(TF_OpKernelConstruction* context) {
    auto kernel = std::make_unique<ApplyCountKernel>();
    auto spec = GetCallSpec(context);
    if (!spec.ok()) return spec.status();
    kernel->spec_ = std::move(spec.value());
    return kernel;
  }

  Status Compute(TF_OpKernelContext* context) {
    auto resolved = spec_->Resolve();
    if (!resolved.ok()) return resolved.status();
    const std::vector<TablePtr>& tables = *resolved.value().tables;
    const int64_t shape[] = {static_cast<int64_t>(tables.size())};
    auto counts = NewOutput(context, 0, TF_INT64, {shape, 1}, sizeof(int64_t));
    if (!counts.ok()) return counts.status();
    int64_t* out = static_cast<int64_t*>(TF_TensorData(counts.value().get()));
    for (const TablePtr& table : tables) *out++ = table->applies.load();
    return Status();
  }

 private:
  std::unique_ptr<CallSpec> spec_;
};

const bool registered = (RegisterCpuKernel<ApplyGradKernel>("HetApplyGrad"),
                         RegisterCpuKernel<ApplyCountKernel>("HetApplyCount"), true);

}  // namespace
}  // namespace het
