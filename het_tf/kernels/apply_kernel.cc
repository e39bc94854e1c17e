// HetKeepGrad: the gradient of HetLookup. HetApplyGrad: an optimizer's update. HetApplyCount: the step of a
// schedule.
#include <string>
#include <vector>

#include "het_tf/kernels/id_inputs.h"

namespace het {
namespace {

Span<const float> FloatsOf(const TfTensor& tensor) {
  return {static_cast<const float*>(TF_TensorData(tensor.get())),
          static_cast<size_t>(TF_TensorElementCount(tensor.get()))};
}

// The gradients of HetKeepGrad, borrowed from the op's inputs.
struct GradientInputs {
  std::vector<TfTensor> tensors;
  std::vector<const float*> pointers;
};

// InvalidArgument: a shape is wrong.
Result<GradientInputs> GetGradients(TF_OpKernelContext* context, const CallSpec& spec, const IdInputs& ids) {
  GradientInputs inputs;
  const int n = static_cast<int>(spec.features().size());
  for (int f = 0; f < n; ++f) {
    HET_ASSIGN_OR_RETURN(auto tensor, GetInput(context, n + f));
    const uint32_t table = spec.features()[f].table;
    std::vector<int64_t> wanted = ShapeOf(ids.tensors[f].get());
    wanted.push_back(spec.schemas()[table]->dim());
    const std::vector<int64_t> given = ShapeOf(tensor.get());
    if (given != wanted) {
      return InvalidArgument("HetKeepGrad: the gradient of feature " + std::to_string(f) + " (table '" +
                             spec.tables()[table] + "') has shape " + ShapeText(given) + "; it must be " +
                             ShapeText(wanted));
    }
    inputs.pointers.push_back(FloatsOf(tensor).data());
    inputs.tensors.push_back(std::move(tensor));
  }
  return inputs;
}

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
    HET_ASSIGN_OR_RETURN(const IdInputs ids, GetIdInputs(context, *spec_, 0));
    HET_ASSIGN_OR_RETURN(const GradientInputs gradients, GetGradients(context, *spec_, ids));
    HET_ASSIGN_OR_RETURN(const auto token, GetInput(context, 2 * static_cast<int>(spec_->features().size())));
    ApplyArgs args;
    args.token = static_cast<uint64_t>(*static_cast<const int64_t*>(TF_TensorData(token.get())));
    args.gradients = gradients.pointers;
    const int64_t shape[] = {static_cast<int64_t>(spec_->ticket_rows()), 2};
    HET_ASSIGN_OR_RETURN(auto tickets, NewOutput(context, 0, TF_FLOAT, {shape, 2}, sizeof(float)));
    return resolved.engine->steps().Keep({*resolved.tables, ids.features, spec_->signature()}, args,
                                         spec_->variables(), static_cast<uint32_t>(worker_), nullptr,
                                         static_cast<float*>(TF_TensorData(tickets.get())));
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
    HET_ASSIGN_OR_RETURN(const auto resolved, spec_->Resolve());
    HET_ASSIGN_OR_RETURN(const TfTensor tickets, GetInput(context, 0));
    HET_ASSIGN_OR_RETURN(const TfTensor rates, GetInput(context, 1));
    HET_ASSIGN_OR_RETURN(const TfTensor scale, GetInput(context, 2));
    const auto wrong = [](const char* what, const TfTensor& given, const std::string& wanted) {
      const std::vector<int64_t> shape = ShapeOf(given.get());
      return InvalidArgument(std::string("HetApplyGrad: ") + what + ShapeText(shape) + "; it must be " +
                             wanted);
    };
    if (ShapeOf(tickets.get()) != std::vector<int64_t>{KeptGradients::kSlots, 2}) {
      return wrong("tickets have shape ", tickets, "[" + std::to_string(KeptGradients::kSlots) + ", 2]");
    }
    if (FloatsOf(scale).size() != 1) return wrong("scale has shape ", scale, "a scalar");
    HET_RETURN_IF_ERROR(resolved.engine->steps().ApplyKept(
        {spec_->variables()[0], *resolved.tables, FloatsOf(tickets), FloatsOf(rates), FloatsOf(scale)[0]}));
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
