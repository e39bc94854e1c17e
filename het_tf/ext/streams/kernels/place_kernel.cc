// HetPlaceSamples: chooses workers for a global batch's samples by the last users of their rows
// (ext/streams/cc/location.h).
#include <algorithm>

#include "het_tf/ext/streams/cc/location.h"
#include "het_tf/kernels/tf/tf_util.h"

namespace het {
namespace {

class PlaceSamplesKernel {
 public:
  static Result<std::unique_ptr<PlaceSamplesKernel>> Create(TF_OpKernelConstruction* context) {
    auto kernel = std::make_unique<PlaceSamplesKernel>();
    HET_ASSIGN_OR_RETURN(kernel->workers_, GetIntAttr(context, "workers"));
    HET_ASSIGN_OR_RETURN(kernel->batch_, GetIntAttr(context, "batch"));
    return kernel;
  }

  // Inputs: keys, slots, number. Outputs: owners, next slots.
  Status Compute(TF_OpKernelContext* context) {
    HET_ASSIGN_OR_RETURN(const TfTensor keys, GetInput(context, 0));
    HET_ASSIGN_OR_RETURN(const TfTensor slots, GetInput(context, 1));
    HET_ASSIGN_OR_RETURN(const TfTensor number, GetInput(context, 2));
    const int64_t samples = int64_t{workers_} * batch_, count = TF_TensorElementCount(slots.get());
    HET_ASSIGN_OR_RETURN(const TfTensor owners, NewOutput(context, 0, TF_INT64, {&samples, 1}, 8));
    HET_ASSIGN_OR_RETURN(const TfTensor next, NewOutput(context, 1, TF_UINT32, {&count, 1}, 4));
    std::copy_n(Of<uint32_t>(slots).data(), static_cast<size_t>(count), Of<uint32_t>(next).data());
    const Span<const uint64_t> given(Of<uint64_t>(keys).data(), Of<uint64_t>(keys).size());
    Location rule(static_cast<size_t>(workers_), static_cast<size_t>(batch_));
    return rule.Place(Of<uint64_t>(number)[0], given, Of<uint32_t>(next), Of<int64_t>(owners));
  }

 private:
  template <typename T>
  static Span<T> Of(const TfTensor& tensor) {
    return {static_cast<T*>(TF_TensorData(tensor.get())),
            static_cast<size_t>(TF_TensorElementCount(tensor.get()))};
  }

  int32_t workers_ = 1, batch_ = 1;
};

const bool place_registered = (RegisterCpuKernel<PlaceSamplesKernel>("HetPlaceSamples"), true);

}  // namespace
}  // namespace het
