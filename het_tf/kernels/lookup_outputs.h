// The outputs of HetLookup, which its two kernels share: rows * N, token, probe.
#pragma once

#include <vector>

#include "het_tf/kernels/id_inputs.h"

namespace het {

struct RowOutputs {
  std::vector<TfTensor> tensors;
  std::vector<float*> rows;  // of each feature
};

// Inputs of the op: ids * N, anchor, hints * N. Allocates rows for the ids. InvalidArgument: a
// hint, from which the static shape of the rows came, tells another dim than the table's.
Result<RowOutputs> NewRowOutputs(TF_OpKernelContext* context, const CallSpec& spec, const IdInputs& ids);

// Token and probe.
Status SetScalarOutputs(TF_OpKernelContext* context, const CallSpec& spec, uint64_t token);

}  // namespace het
