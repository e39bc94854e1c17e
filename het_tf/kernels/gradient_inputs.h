// Inputs of the ops that take and apply gradients.
#pragma once

#include <vector>

#include "het_tf/kernels/id_inputs.h"

namespace het {

// Of HetKeepGrad: ids * N, grads * N, token.
struct GradientInputs {
  IdInputs ids;
  std::vector<TfTensor> tensors;
  std::vector<const float*> pointers;
  uint64_t token = 0;
};

// InvalidArgument: a shape is wrong.
Result<GradientInputs> GetGradientInputs(TF_OpKernelContext* context, const CallSpec& spec,
                                         const CallSpec::Resolved& resolved);

// A variable's update. Reads tickets and scale; learning rates from input `rates`, unless it is negative.
struct KeptInputs {
  CallSpec::Resolved resolved;
  TfTensor tickets, rates;
  KeptCall call;
};
Result<KeptInputs> GetKeptInputs(TF_OpKernelContext* context, CallSpec* spec, int rates, int scale);

// Reads float32 [tables of spec], finite. `tensor` owns them.
Result<Span<const float>> GetLearningRates(TF_OpKernelContext* context, const CallSpec& spec, int index,
                                           TfTensor* tensor);

}  // namespace het
