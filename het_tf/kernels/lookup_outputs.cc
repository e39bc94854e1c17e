#include "het_tf/kernels/lookup_outputs.h"

#include <string>

namespace het {

Result<RowOutputs> NewRowOutputs(TF_OpKernelContext* context, const CallSpec& spec, const IdInputs& ids) {
  const int n = static_cast<int>(spec.features().size());
  RowOutputs outputs;
  for (int f = 0; f < n; ++f) {
    const uint32_t table = spec.features()[f].table;
    const int64_t dim = spec.schemas()[table]->dim();
    HET_ASSIGN_OR_RETURN(const TfTensor hint, GetInput(context, n + 1 + f));
    const std::vector<int64_t> hinted = ShapeOf(hint.get());
    if (hinted.size() != 2 || hinted[1] != dim) {
      return InvalidArgument("HetLookup: the hint of table '" + spec.tables()[table] + "' has shape " +
                             ShapeText(hinted) + "; it must be [0, " + std::to_string(dim) + "]");
    }
    std::vector<int64_t> shape = ShapeOf(ids.tensors[f].get());
    shape.push_back(dim);
    HET_ASSIGN_OR_RETURN(TfTensor rows, NewOutput(context, f, TF_FLOAT, shape, sizeof(float)));
    outputs.rows.push_back(static_cast<float*>(TF_TensorData(rows.get())));
    outputs.tensors.push_back(std::move(rows));
  }
  return outputs;
}

Status SetToken(TF_OpKernelContext* context, const CallSpec& spec, uint64_t token) {
  const int n = static_cast<int>(spec.features().size());
  return SetScalar<int64_t>(context, n, TF_INT64, static_cast<int64_t>(token));
}

}  // namespace het
