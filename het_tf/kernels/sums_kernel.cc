// HetSumGrads and HetApplySums: HetApplyGrad in two halves, between which workers exchange gradients.
#include <cstring>
#include <limits>
#include <new>

#include "het_tf/core/plan/gradient_sums.h"
#include "het_tf/kernels/gradient_inputs.h"

namespace het {
namespace {

class SumGradsKernel {
 public:
  static Result<std::unique_ptr<SumGradsKernel>> Create(TF_OpKernelConstruction* context) {
    auto kernel = std::make_unique<SumGradsKernel>();
    auto spec = GetCallSpec(context);
    if (!spec.ok()) return spec.status();
    kernel->spec_ = std::move(spec.value());
    return kernel;
  }

  // Inputs: ids * N, grads * N, token, scale, loss_scale, workers. Outputs: payload, splits, tie.
  Status Compute(TF_OpKernelContext* context) {
    const int n = static_cast<int>(spec_->features().size());
    auto workers = GetInput(context, 2 * n + 3);
    if (!workers.ok()) return workers.status();
    const int32_t count = *static_cast<const int32_t*>(TF_TensorData(workers.value().get()));
    if (count < 1 || count > 65536) {
      return InvalidArgument("HetSumGrads: there are " + std::to_string(count) + " workers");
    }
    // An error here is everybody's: the others wait for this worker's part, so it is sent to them.
    GradientSums sums;
    Bytes bytes;
    Vector<int32_t> splits;
    try {
      const Status error = Sum(context, static_cast<uint32_t>(count), &sums);
      (void)PackSums(error, sums, spec_->signature(), static_cast<uint32_t>(count), &bytes, &splits);
    } catch (const std::bad_alloc&) {
      const Status error(
          Code::kResourceExhausted,
          "out of memory while gradients were summed; no row was changed. Use a smaller batch");
      bytes = Bytes();
      splits = Vector<int32_t>();
      (void)PackSums(error, GradientSums(), spec_->signature(), static_cast<uint32_t>(count), &bytes,
                     &splits);
    }
    HET_RETURN_IF_ERROR(SetVector(context, 0, TF_UINT8, bytes.data(), bytes.size(), sizeof(uint8_t)));
    HET_RETURN_IF_ERROR(SetVector(context, 1, TF_INT32, splits.data(), splits.size(), sizeof(int32_t)));
    return SetScalar<float>(context, 2, TF_FLOAT, 0.0f);
  }

 private:
  Status Sum(TF_OpKernelContext* context, uint32_t workers, GradientSums* sums) {
    auto resolved = spec_->Resolve();
    if (!resolved.ok()) return resolved.status();
    const int n = static_cast<int>(spec_->features().size());
    auto inputs = GetGradientInputs(context, *spec_, resolved.value(), 2 * n + 1);
    if (!inputs.ok()) return inputs.status();
    if (workers > 1 && !resolved.value().engine->remote()) {
      return FailedPrecondition(
          "accumulate sends the gradients of a row to the one worker that updates it, and the tables are in "
          "each worker's own process, where the others would never see the update. Name a parameter server: "
          "het_tf.init(ps=\"redis://HOST:PORT\"), or HET_PS");
    }
    return resolved.value().engine->SumGradients(inputs.value().call(resolved.value()), inputs.value().args(),
                                                 sums);
  }

  static Status SetVector(TF_OpKernelContext* context, int index, TF_DataType type, const void* data,
                          size_t count, size_t element_size) {
    const int64_t shape[] = {static_cast<int64_t>(count)};
    auto tensor = NewOutput(context, index, type, {shape, 1}, element_size);
    if (!tensor.ok()) return tensor.status();
    if (count != 0) std::memcpy(TF_TensorData(tensor.value().get()), data, count * element_size);
    return Status();
  }

  std::unique_ptr<CallSpec> spec_;
};

class ApplySumsKernel {
 public:
  static Result<std::unique_ptr<ApplySumsKernel>> Create(TF_OpKernelConstruction* context) {
    auto kernel = std::make_unique<ApplySumsKernel>();
    auto spec = GetCallSpec(context);
    if (!spec.ok()) return spec.status();
    kernel->spec_ = std::move(spec.value());
    return kernel;
  }

  // Inputs: received, lengths, learning_rates, tie. Output: anchor_grad.
  Status Compute(TF_OpKernelContext* context) {
    auto received = GetInput(context, 0);
    if (!received.ok()) return received.status();
    auto lengths = GetInput(context, 1);
    if (!lengths.ok()) return lengths.status();
    auto resolved = spec_->Resolve();
    if (!resolved.ok()) return resolved.status();

    SumsLayout layout;
    layout.signature = spec_->signature();
    for (const TablePtr& table : *resolved.value().tables) layout.dims.push_back(table->schema->dim());
    for (const CallSpec::Feature& feature : spec_->features()) {
      layout.table_of_feature.push_back(feature.table);
    }
    const TF_Tensor* bytes = received.value().get();
    const TF_Tensor* counts = lengths.value().get();
    MergedSums sums;
    HET_RETURN_IF_ERROR(MergeSums(layout,
                                  {static_cast<const uint8_t*>(TF_TensorData(bytes)),
                                   static_cast<size_t>(TF_TensorElementCount(bytes))},
                                  {static_cast<const int32_t*>(TF_TensorData(counts)),
                                   static_cast<size_t>(TF_TensorElementCount(counts))},
                                  &sums));
    if (sums.skip) {
      return SetScalar<float>(context, 0, TF_FLOAT, std::numeric_limits<float>::quiet_NaN());
    }
    TfTensor rates_tensor;
    auto rates = GetLearningRates(context, *spec_, 2, &rates_tensor);
    if (!rates.ok()) return rates.status();
    HET_RETURN_IF_ERROR(resolved.value().engine->ApplySums(*resolved.value().tables, sums, rates.value()));
    return SetScalar<float>(context, 0, TF_FLOAT, 0.0f);
  }

 private:
  std::unique_ptr<CallSpec> spec_;
};

const bool registered = (RegisterCpuKernel<SumGradsKernel>("HetSumGrads"),
                         RegisterCpuKernel<ApplySumsKernel>("HetApplySums"), true);

}  // namespace
}  // namespace het
