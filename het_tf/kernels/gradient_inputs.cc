#include "het_tf/kernels/gradient_inputs.h"

namespace het {
namespace {

Result<float> GetScalar(TF_OpKernelContext* context, int index, const char* name) {
  HET_ASSIGN_OR_RETURN(auto tensor, GetInput(context, index));
  const std::vector<int64_t> shape = ShapeOf(tensor.get());
  if (TF_TensorElementCount(tensor.get()) != 1) {
    return InvalidArgument(std::string("HetApplyGrad: ") + name + " has shape " + ShapeText(shape) +
                           "; it must be a scalar");
  }
  return *static_cast<const float*>(TF_TensorData(tensor.get()));
}

Status GetGradients(TF_OpKernelContext* context, const CallSpec& spec, const CallSpec::Resolved& resolved,
                    GradientInputs* inputs) {
  const int n = static_cast<int>(spec.features().size());
  for (int f = 0; f < n; ++f) {
    HET_ASSIGN_OR_RETURN(auto tensor, GetInput(context, n + f));
    const uint32_t table = spec.features()[f].table;
    std::vector<int64_t> wanted = ShapeOf(inputs->ids.tensors[f].get());
    wanted.push_back((*resolved.tables)[table]->schema->dim());
    const std::vector<int64_t> given = ShapeOf(tensor.get());
    if (given != wanted) {
      return InvalidArgument("HetKeepGrad: the gradient of feature " + std::to_string(f) + " (table '" +
                             spec.tables()[table] + "') has shape " + ShapeText(given) + "; it must be " +
                             ShapeText(wanted));
    }
    inputs->pointers.push_back(static_cast<const float*>(TF_TensorData(tensor.get())));
    inputs->tensors.push_back(std::move(tensor));
  }
  return Status();
}

}  // namespace

Result<GradientInputs> GetGradientInputs(TF_OpKernelContext* context, const CallSpec& spec,
                                         const CallSpec::Resolved& resolved) {
  GradientInputs inputs;
  HET_ASSIGN_OR_RETURN(inputs.ids, GetIdInputs(context, spec, 0));
  HET_RETURN_IF_ERROR(GetGradients(context, spec, resolved, &inputs));
  HET_ASSIGN_OR_RETURN(auto token, GetInput(context, 2 * static_cast<int>(spec.features().size())));
  inputs.token = static_cast<uint64_t>(*static_cast<const int64_t*>(TF_TensorData(token.get())));
  return inputs;
}

Result<KeptInputs> GetKeptInputs(TF_OpKernelContext* context, CallSpec* spec, int rates, int scale) {
  KeptInputs inputs;
  HET_ASSIGN_OR_RETURN(inputs.resolved, spec->Resolve());
  HET_ASSIGN_OR_RETURN(inputs.tickets, GetInput(context, 0));
  const std::vector<int64_t> shape = ShapeOf(inputs.tickets.get());
  if (shape != std::vector<int64_t>{KeptGradients::kSlots, 2}) {
    return InvalidArgument("HetApplyGrad: tickets have shape " + ShapeText(shape) + "; it must be [" +
                           std::to_string(KeptGradients::kSlots) + ", 2]");
  }
  inputs.call.variable = spec->variables()[0];
  inputs.call.tables = *inputs.resolved.tables;
  inputs.call.tickets = {static_cast<const float*>(TF_TensorData(inputs.tickets.get())),
                         2 * KeptGradients::kSlots};
  HET_ASSIGN_OR_RETURN(inputs.call.scale, GetScalar(context, scale, "scale"));
  if (rates >= 0) {
    HET_ASSIGN_OR_RETURN(inputs.call.learning_rates, GetLearningRates(context, *spec, rates, &inputs.rates));
  }
  return inputs;
}

Result<Span<const float>> GetLearningRates(TF_OpKernelContext* context, const CallSpec& spec, int index,
                                           TfTensor* tensor) {
  HET_ASSIGN_OR_RETURN(*tensor, GetInput(context, index));
  const size_t given = static_cast<size_t>(TF_TensorElementCount(tensor->get()));
  const Span<const float> values(static_cast<const float*>(TF_TensorData(tensor->get())), given);
  HET_RETURN_IF_ERROR(CheckLearningRates(spec, values));
  return values;
}

}  // namespace het
