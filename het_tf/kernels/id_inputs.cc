#include "het_tf/kernels/id_inputs.h"

namespace het {

Result<std::unique_ptr<CallSpec>> GetCallSpec(TF_OpKernelConstruction* context) {
  auto tables = GetStringListAttr(context, "tables");
  if (!tables.ok()) return tables.status();
  auto specs = GetStringAttr(context, "specs");
  if (!specs.ok()) return specs.status();
  return CallSpec::Create(tables.value(), specs.value());
}

Result<IdInputs> GetIdInputs(TF_OpKernelContext* context, const CallSpec& spec, int first) {
  IdInputs inputs;
  for (size_t f = 0; f < spec.features().size(); ++f) {
    auto tensor = GetInput(context, first + static_cast<int>(f));
    if (!tensor.ok()) return tensor.status();
    const TF_Tensor* ids = tensor.value().get();
    inputs.features.push_back(
        {spec.features()[f].table,
         {static_cast<const int64_t*>(TF_TensorData(ids)), static_cast<size_t>(TF_TensorElementCount(ids))},
         spec.features()[f].padding_id});
    inputs.tensors.push_back(std::move(tensor.value()));
  }
  return inputs;
}

}  // namespace het
