// The outputs of HetLookup's two kernels: rows * N, token.
#pragma once

#include <vector>

#include "het_tf/kernels/id_inputs.h"

namespace het {

struct RowOutputs {
  std::vector<TfTensor> tensors;
  std::vector<float*> rows;  // for each feature
};

// Inputs of the op: ids * N, anchor, hints * N. Allocates rows for the ids. InvalidArgument: a hint, which
// gave the rows their static shape, has another dim than the table.
Result<RowOutputs> NewRowOutputs(TF_OpKernelContext* context, const CallSpec& spec, const IdInputs& ids);

// Sets token.
Status SetToken(TF_OpKernelContext* context, const CallSpec& spec, uint64_t token);

}  // namespace het
