// HetSumGrads and HetApplySums: the halves of HetApplyGrad, between which workers exchange gradients.
#include <cstring>

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

  // Inputs: tickets, scale, workers. Outputs: payload, splits, layout.
  Status Compute(TF_OpKernelContext* context) {
    HET_ASSIGN_OR_RETURN(auto workers, GetInput(context, 2));
    const int32_t count = *static_cast<const int32_t*>(TF_TensorData(workers.get()));
    if (count < 1 || count > 65536) {
      return InvalidArgument("HetSumGrads: there are " + std::to_string(count) + " workers");
    }
    // The other workers wait for this worker's part, so it carries an error too.
    const uint32_t others = static_cast<uint32_t>(count);
    GradientSums sums;
    SumsLayout layout;
    Bytes bytes;
    Vector<int32_t> splits;
    const Status error = AtMemoryEdge([&]() -> Status {
      HET_RETURN_IF_ERROR(Sum(context, others, &sums, &layout));
      return PackSums(Status(), sums, layout.signature, others, &bytes, &splits);
    });
    if (!error.ok()) {
      sums = GradientSums();
      static_cast<void>(PackSums(error, sums, layout.signature, others, &bytes, &splits));
    }
    HET_RETURN_IF_ERROR(SetVector(context, 0, TF_UINT8, bytes.data(), bytes.size(), sizeof(uint8_t)));
    HET_RETURN_IF_ERROR(SetVector(context, 1, TF_INT32, splits.data(), splits.size(), sizeof(int32_t)));
    Vector<uint64_t> numbers{layout.signature, layout.layer};
    numbers.insert(numbers.end(), layout.table_of_feature.begin(), layout.table_of_feature.end());
    return SetVector(context, 2, TF_INT64, numbers.data(), numbers.size(), sizeof(uint64_t));
  }

 private:
  Status Sum(TF_OpKernelContext* context, uint32_t workers, GradientSums* sums, SumsLayout* layout) {
    HET_ASSIGN_OR_RETURN(const KeptInputs inputs, GetKeptInputs(context, spec_.get(), -1, 1));
    Engine& engine = *inputs.resolved.engine;
    if (workers > 1 && !engine.remote()) {
      return FailedPrecondition(
          "accumulate sends the gradients of a row to the one worker that updates it, and the tables are in "
          "each worker's own process, where the others would never see the update. Name a parameter server: "
          "het_tf.init(ps=\"redis://HOST:PORT\"), or HET_PS");
    }
    return engine.steps().SumKept(inputs.call, workers, sums, layout);
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

  // Inputs: received, lengths, learning_rates, layout. Output: done.
  Status Compute(TF_OpKernelContext* context) {
    HET_ASSIGN_OR_RETURN(auto received, GetInput(context, 0));
    HET_ASSIGN_OR_RETURN(auto lengths, GetInput(context, 1));
    HET_ASSIGN_OR_RETURN(auto numbers, GetInput(context, 3));
    HET_ASSIGN_OR_RETURN(auto resolved, spec_->Resolve());

    const auto* number = static_cast<const uint64_t*>(TF_TensorData(numbers.get()));
    SumsLayout layout;
    layout.signature = number[0];
    layout.layer = number[1];
    for (const TablePtr& table : *resolved.tables) layout.dims.push_back(table->schema->dim());
    for (int64_t i = 2; i < TF_TensorElementCount(numbers.get()); ++i) {
      layout.table_of_feature.push_back(static_cast<uint32_t>(number[i]));
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
    HET_RETURN_IF_ERROR(resolved.engine->steps().ApplySums(*resolved.tables, layout.layer, sums, rates));
    return SetScalar<float>(context, 0, TF_FLOAT, 0.0f);
  }

 private:
  std::unique_ptr<CallSpec> spec_;
};

const bool sums_registered = (RegisterCpuKernel<SumGradsKernel>("HetSumGrads"),
                              RegisterCpuKernel<ApplySumsKernel>("HetApplySums"), true);

}  // namespace
}  // namespace het
