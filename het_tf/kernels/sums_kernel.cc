// HetSumGrads and HetApplySums: the halves of HetApplyGrad, between which workers exchange gradients.
#include <cstring>
#include <limits>

#include "het_tf/core/plan/gradient_sums.h"
#include "het_tf/kernels/gradient_inputs.h"

namespace het {
namespace {

class SumGradsKernel {
 public:
  static Result<std::unique_ptr<SumGradsKernel>> Create(TF_OpKernelConstruction* context) {
    auto kernel = std::make_unique<SumGradsKernel>();
    HET_ASSIGN_OR_RETURN(kernel->spec_, GetCallSpec(context));
    return kernel;
  }

  // Inputs: ids * N, grads * N, token, scale, loss_scale, workers. Outputs: payload, splits, tie.
  Status Compute(TF_OpKernelContext* context) {
    const int n = static_cast<int>(spec_->features().size());
    HET_ASSIGN_OR_RETURN(auto workers, GetInput(context, 2 * n + 3));
    const int32_t count = *static_cast<const int32_t*>(TF_TensorData(workers.get()));
    if (count < 1 || count > 65536) {
      return InvalidArgument("HetSumGrads: there are " + std::to_string(count) + " workers");
    }
    // The other workers wait for this worker's part, so it carries an error too.
    const uint32_t others = static_cast<uint32_t>(count);
    GradientSums sums;
    Bytes bytes;
    Vector<int32_t> splits;
    const Status error = AtMemoryEdge([&]() -> Status {
      HET_RETURN_IF_ERROR(Sum(context, others, &sums));
      return PackSums(Status(), sums, spec_->signature(), others, &bytes, &splits);
    });
    if (!error.ok()) {
      sums = GradientSums();
      static_cast<void>(PackSums(error, sums, spec_->signature(), others, &bytes, &splits));
    }
    HET_RETURN_IF_ERROR(SetVector(context, 0, TF_UINT8, bytes.data(), bytes.size(), sizeof(uint8_t)));
    HET_RETURN_IF_ERROR(SetVector(context, 1, TF_INT32, splits.data(), splits.size(), sizeof(int32_t)));
    return SetScalar<float>(context, 2, TF_FLOAT, 0.0f);
  }

 private:
  Status Sum(TF_OpKernelContext* context, uint32_t workers, GradientSums* sums) {
    HET_ASSIGN_OR_RETURN(auto resolved, spec_->Resolve());
    const int n = static_cast<int>(spec_->features().size());
    HET_ASSIGN_OR_RETURN(auto inputs, GetGradientInputs(context, *spec_, resolved, 2 * n + 1));
    if (workers > 1 && !resolved.engine->remote()) {
      return FailedPrecondition(
          "accumulate sends the gradients of a row to the one worker that updates it, and the tables are in "
          "each worker's own process, where the others would never see the update. Name a parameter server: "
          "het_tf.init(ps=\"redis://HOST:PORT\"), or HET_PS");
    }
    return resolved.engine->steps().SumGradients(inputs.call(resolved), inputs.args(), workers, sums);
  }

  static Status SetVector(TF_OpKernelContext* context, int index, TF_DataType type, const void* data,
                          size_t count, size_t element_size) {
    const int64_t shape[] = {static_cast<int64_t>(count)};
    HET_ASSIGN_OR_RETURN(auto tensor, NewOutput(context, index, type, {shape, 1}, element_size));
    if (count != 0) std::memcpy(TF_TensorData(tensor.get()), data, count * element_size);
    return Status();
  }

  std::unique_ptr<CallSpec> spec_;
};

class ApplySumsKernel {
 public:
  static Result<std::unique_ptr<ApplySumsKernel>> Create(TF_OpKernelConstruction* context) {
    auto kernel = std::make_unique<ApplySumsKernel>();
    HET_ASSIGN_OR_RETURN(kernel->spec_, GetCallSpec(context));
    return kernel;
  }

  // Inputs: received, lengths, learning_rates, tie. Output: anchor_grad.
  Status Compute(TF_OpKernelContext* context) {
    HET_ASSIGN_OR_RETURN(auto received, GetInput(context, 0));
    HET_ASSIGN_OR_RETURN(auto lengths, GetInput(context, 1));
    HET_ASSIGN_OR_RETURN(auto resolved, spec_->Resolve());

    SumsLayout layout;
    layout.signature = spec_->signature();
    for (const TablePtr& table : *resolved.tables) layout.dims.push_back(table->schema->dim());
    for (const CallSpec::Feature& feature : spec_->features()) {
      layout.table_of_feature.push_back(feature.table);
    }
    const TF_Tensor* bytes = received.get();
    const TF_Tensor* counts = lengths.get();
    MergedSums sums;
    HET_RETURN_IF_ERROR(MergeSums(layout,
                                  {static_cast<const uint8_t*>(TF_TensorData(bytes)),
                                   static_cast<size_t>(TF_TensorElementCount(bytes))},
                                  {static_cast<const int32_t*>(TF_TensorData(counts)),
                                   static_cast<size_t>(TF_TensorElementCount(counts))},
                                  &sums));
    TfTensor rates_tensor;
    HET_ASSIGN_OR_RETURN(auto rates, GetLearningRates(context, *spec_, 2, &rates_tensor));
    HET_RETURN_IF_ERROR(
        resolved.engine->steps().ApplySums(*resolved.tables, spec_->signature(), sums, rates));
    return SetScalar<float>(context, 0, TF_FLOAT, sums.skip ? std::numeric_limits<float>::quiet_NaN() : 0.0f);
  }

 private:
  std::unique_ptr<CallSpec> spec_;
};

const bool sums_registered = (RegisterCpuKernel<SumGradsKernel>("HetSumGrads"),
                              RegisterCpuKernel<ApplySumsKernel>("HetApplySums"), true);

}  // namespace
}  // namespace het
