#include "het_tf/kernels/id_inputs.h"

namespace het {

Result<std::unique_ptr<CallSpec>> GetCallSpec(TF_OpKernelConstruction* context) {
  HET_ASSIGN_OR_RETURN(auto tables, GetStringListAttr(context, "tables"));
  HET_ASSIGN_OR_RETURN(auto specs, GetStringAttr(context, "specs"));
  return CallSpec::Create(tables, specs);
}

Result<IdInputs> GetIdInputs(TF_OpKernelContext* context, const CallSpec& spec, int first) {
  IdInputs inputs;
  for (size_t f = 0; f < spec.features().size(); ++f) {
    HET_ASSIGN_OR_RETURN(auto tensor, GetInput(context, first + static_cast<int>(f)));
    const TF_Tensor* ids = tensor.get();
    inputs.features.push_back(
        {spec.features()[f].table,
         {static_cast<const int64_t*>(TF_TensorData(ids)), static_cast<size_t>(TF_TensorElementCount(ids))},
         spec.features()[f].padding_id});
    inputs.tensors.push_back(std::move(tensor));
  }
  return inputs;
}

}  // namespace het
