// HetKeepGrad: the gradient of HetLookup. HetApplyGrad: an optimizer's update. HetApplyCount: the step of a
// schedule.
#include <algorithm>

#include "het_tf/kernels/gradient_inputs.h"

namespace het {
namespace {

class KeepGradKernel {
 public:
  static Result<std::unique_ptr<KeepGradKernel>> Create(TF_OpKernelConstruction* context) {
    auto kernel = std::make_unique<KeepGradKernel>();
    HET_ASSIGN_OR_RETURN(kernel->spec_, GetCallSpec(context));
    HET_ASSIGN_OR_RETURN(kernel->worker_, GetIntAttr(context, "worker"));
    return kernel;
  }

  // Inputs: ids * N, grads * N, token, norm. Output: tickets.
  Status Compute(TF_OpKernelContext* context) {
    HET_ASSIGN_OR_RETURN(auto resolved, spec_->Resolve());
    HET_ASSIGN_OR_RETURN(auto inputs, GetGradientInputs(context, *spec_, resolved));
    ApplyArgs args;
    args.token = inputs.token;
    args.gradients = inputs.pointers;
    std::vector<KeptGradients::Given> given;
    HET_RETURN_IF_ERROR(
        resolved.engine->steps().Keep({*resolved.tables, inputs.ids.features, spec_->signature()}, args,
                                      spec_->variables(), static_cast<uint32_t>(worker_), nullptr, &given));
    const size_t floats = given.size() * KeptGradients::kSlots * 2;
    const int64_t shape[] = {static_cast<int64_t>(floats / 2), 2};
    HET_ASSIGN_OR_RETURN(auto tickets, NewOutput(context, 0, TF_FLOAT, {shape, 2}, sizeof(float)));
    WriteTickets({given.data(), given.size()}, static_cast<float*>(TF_TensorData(tickets.get())));
    return Status();
  }

 private:
  std::unique_ptr<CallSpec> spec_;
  int32_t worker_ = 0;
};

class ApplyGradKernel {
 public:
  static Result<std::unique_ptr<ApplyGradKernel>> Create(TF_OpKernelConstruction* context) {
    auto kernel = std::make_unique<ApplyGradKernel>();
    HET_ASSIGN_OR_RETURN(kernel->spec_, GetCallSpec(context));
    return kernel;
  }

  // Inputs: tickets, learning_rates, scale. Output: done.
  Status Compute(TF_OpKernelContext* context) {
    HET_ASSIGN_OR_RETURN(const KeptInputs inputs, GetKeptInputs(context, spec_.get(), 1, 2));
    HET_RETURN_IF_ERROR(inputs.resolved.engine->steps().ApplyKept(inputs.call));
    return SetScalar<float>(context, 0, TF_FLOAT, 0.0f);
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

const bool apply_registered =
    (RegisterCpuKernel<KeepGradKernel>("HetKeepGrad"), RegisterCpuKernel<ApplyGradKernel>("HetApplyGrad"),
     RegisterCpuKernel<ApplyCountKernel>("HetApplyCount"), true);

}  // namespace
}  // namespace het
