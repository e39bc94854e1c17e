// Inputs shared by the ops that take gradients: ids * N, grads * N, token, and later scale and loss_scale.
#pragma once

#include <vector>

#include "het_tf/kernels/id_inputs.h"

namespace het {

struct GradientInputs {
  IdInputs ids;
  std::vector<TfTensor> tensors;
  std::vector<const float*> pointers;
  uint64_t token = 0;
  uint64_t layer = 0;
  GradientScale scale;

  BatchCall call(const CallSpec::Resolved& resolved) const { return {*resolved.tables, ids.features, layer}; }
  // All arguments except the learning rates.
  ApplyArgs args() const;
};

// `scale` and `scale + 1` are the inputs scale and loss_scale. InvalidArgument: a shape is wrong;
// FailedPrecondition: a loss scale is needed and absent.
Result<GradientInputs> GetGradientInputs(TF_OpKernelContext* context, const CallSpec& spec,
                                         const CallSpec::Resolved& resolved, int scale);

// Reads float32 [tables of spec], finite. `tensor` owns them.
Result<Span<const float>> GetLearningRates(TF_OpKernelContext* context, const CallSpec& spec, int index,
                                           TfTensor* tensor);

}  // namespace het
