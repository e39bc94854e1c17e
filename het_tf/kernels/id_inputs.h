// A node's CallSpec and the ids of its features, from TensorFlow's C API.
#pragma once

#include <memory>
#include <vector>

#include "het_tf/core/engine/call_spec.h"
#include "het_tf/kernels/tf/tf_util.h"

namespace het {

// Reads the attributes `tables` and `specs`.
Result<std::unique_ptr<CallSpec>> GetCallSpec(TF_OpKernelConstruction* context);

// The ids of a call's features, borrowed from the op's inputs.
struct IdInputs {
  std::vector<TfTensor> tensors;
  std::vector<FeatureIds> features;
};
// Inputs [first, first + spec.features().size()).
Result<IdInputs> GetIdInputs(TF_OpKernelContext* context, const CallSpec& spec, int first);

}  // namespace het
