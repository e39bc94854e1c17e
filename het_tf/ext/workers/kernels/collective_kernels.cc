// HetReduce, HetGather and HetAccumulate: collectives over the ranks of a job.
//
// A kernel waits for the other ranks, and a process may have one thread for ops. So the collectives of a
// graph run one after the other: their input `order`, the handle of one variable, makes tf.function chain
// them.
#include <cstring>

#include "het_tf/core/base/interrupt.h"
#include "het_tf/ext/workers/cc/accumulate.h"
#include "het_tf/ext/workers/cc/mesh.h"
#include "het_tf/ext/workers/cc/reduce.h"
#include "het_tf/kernels/id_inputs.h"
#include "het_tf/kernels/tf/tf_util.h"
#include "het_tf/ops/op_definition.h"

namespace het {
namespace {

// Sums the tensors of one type, as one vector.
template <typename T>
Status SumAll(Mesh* mesh, const std::string& label, bool mean, TF_DataType type,
              const std::vector<TfTensor>& inputs, const std::vector<TfTensor>& outputs) {
  size_t size = 0;
  for (const TfTensor& one : inputs)
    size += TF_TensorType(one.get()) == type ? TF_TensorByteSize(one.get()) : 0;
  if (size == 0) return Status();
  Bytes packed(size);
  // Copies between the vector and tensors of this type, one after the other.
  const auto each = [&](const std::vector<TfTensor>& tensors, const auto& copy) {
    uint8_t* at = packed.data();
    for (const TfTensor& one : tensors) {
      const size_t bytes = TF_TensorType(one.get()) == type ? TF_TensorByteSize(one.get()) : 0;
      if (bytes != 0) copy(at, TF_TensorData(one.get()), bytes);
      at += bytes;
    }
  };
  each(inputs, [](uint8_t* at, void* data, size_t bytes) { std::memcpy(at, data, bytes); });
  HET_RETURN_IF_ERROR(SumOverRanks(mesh, label, mean, reinterpret_cast<T*>(packed.data()), size / sizeof(T)));
  each(outputs, [](uint8_t* at, void* data, size_t bytes) { std::memcpy(data, at, bytes); });
  return Status();
}

// The kernel of a collective: parses its attribute `label`, and runs it on the mesh.
template <class Collective>
class Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Create(TF_OpKernelConstruction* context) {
    auto kernel = std::make_unique<Kernel>();
    HET_ASSIGN_OR_RETURN(kernel->collective_.label, GetStringAttr(context, "label"));
    HET_RETURN_IF_ERROR(kernel->collective_.Parse(context));
    return kernel;
  }

  Status Compute(TF_OpKernelContext* context) {
    const Interrupts interrupts(Interrupts::By::kOp);
    HET_ASSIGN_OR_RETURN(const auto mesh, ConnectedMesh());
    return collective_.Run(context, mesh.get());
  }

 private:
  Collective collective_;
};

// Inputs: values, order. Outputs: the sums, or means, of each. All values of a type travel as one vector.
struct Reduce {
  std::string label;
  bool mean = false;

  Status Parse(TF_OpKernelConstruction* context) {
    HET_ASSIGN_OR_RETURN(mean, GetBoolAttr(context, "mean"));
    return Status();
  }

  Status Run(TF_OpKernelContext* context, Mesh* mesh) const {
    std::vector<TfTensor> inputs, outputs;
    for (int i = 0; i + 1 < TF_NumInputs(context); ++i) {
      HET_ASSIGN_OR_RETURN(TfTensor input, GetInput(context, i));
      const TF_DataType type = TF_TensorType(input.get());
      const std::vector<int64_t> shape = ShapeOf(input.get());
      HET_ASSIGN_OR_RETURN(TfTensor output,
                           NewOutput(context, i, type, {shape.data(), shape.size()}, TF_DataTypeSize(type)));
      inputs.push_back(std::move(input));
      outputs.push_back(std::move(output));
    }
    HET_RETURN_IF_ERROR(SumAll<float>(mesh, label + "/float", mean, TF_FLOAT, inputs, outputs));
    HET_RETURN_IF_ERROR(SumAll<double>(mesh, label + "/double", mean, TF_DOUBLE, inputs, outputs));
    HET_RETURN_IF_ERROR(SumAll<int32_t>(mesh, label + "/int32", false, TF_INT32, inputs, outputs));
    return SumAll<int64_t>(mesh, label + "/int64", false, TF_INT64, inputs, outputs);
  }
};

// Inputs: value, order. Output: the values of all ranks, one after the other; the first axes may differ.
struct Gather {
  std::string label;

  Status Parse(TF_OpKernelConstruction*) { return Status(); }

  Status Run(TF_OpKernelContext* context, Mesh* mesh) const {
    HET_ASSIGN_OR_RETURN(const TfTensor input, GetInput(context, 0));
    const TF_DataType type = TF_TensorType(input.get());
    std::vector<int64_t> shape = ShapeOf(input.get());
    if (shape.empty()) return InvalidArgument("collective " + label + " gathers a scalar; give it an axis");
    size_t row = TF_DataTypeSize(type);
    for (size_t axis = 1; axis < shape.size(); ++axis) row *= static_cast<size_t>(shape[axis]);
    if (row == 0) return InvalidArgument("collective " + label + " gathers rows without elements");
    const Span<const uint8_t> mine(static_cast<const uint8_t*>(TF_TensorData(input.get())),
                                   TF_TensorByteSize(input.get()));
    const std::vector<int64_t> rest(shape.begin() + 1, shape.end());
    const std::string what = "type " + std::to_string(type) + " [?]" + ShapeText({rest.data(), rest.size()});
    Bytes all;
    HET_RETURN_IF_ERROR(GatherFromRanks(mesh, label, what, mine, &all));
    if (all.size() % row != 0) {
      return Status(Code::kInternal, "collective " + label + ": a rank has sent a part of a row");
    }
    shape[0] = static_cast<int64_t>(all.size() / row);
    HET_ASSIGN_OR_RETURN(const TfTensor output,
                         NewOutput(context, 0, type, {shape.data(), shape.size()}, TF_DataTypeSize(type)));
    if (!all.empty()) std::memcpy(TF_TensorData(output.get()), all.data(), all.size());
    return Status();
  }
};

// HetApplyGrad with the sums of all ranks. Inputs: tickets, learning_rates, scale, order. Output: done.
struct AccumulateGrad {
  std::string label;
  std::unique_ptr<CallSpec> spec;

  Status Parse(TF_OpKernelConstruction* context) {
    HET_ASSIGN_OR_RETURN(spec, GetCallSpec(context));
    return Status();
  }

  Status Run(TF_OpKernelContext* context, Mesh* mesh) const {
    HET_ASSIGN_OR_RETURN(const TfTensor tickets, GetInput(context, 0));
    HET_ASSIGN_OR_RETURN(const TfTensor rates, GetInput(context, 1));
    HET_ASSIGN_OR_RETURN(const TfTensor scale, GetInput(context, 2));
    const auto floats = [](const TfTensor& one) {
      return Span<const float>(static_cast<const float*>(TF_TensorData(one.get())),
                               static_cast<size_t>(TF_TensorElementCount(one.get())));
    };
    if (floats(tickets).size() != 2 * KeptGradients::kSlots || floats(scale).size() != 1) {
      return InvalidArgument("HetAccumulate: it takes tickets [" + std::to_string(KeptGradients::kSlots) +
                             ", 2] and one scale");
    }
    HET_RETURN_IF_ERROR(
        Accumulate(mesh, label, spec.get(), floats(tickets), floats(rates), floats(scale)[0]));
    return SetScalar<float>(context, 0, TF_FLOAT, 0.0f);
  }
};

void SameShapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  const int n = static_cast<int>(TF_ShapeInferenceContextNumInputs(context)) - 1;
  for (int i = 0; i < n && Ok(status); ++i) {
    const Shape shape(TF_NewShapeHandle());
    TF_ShapeInferenceContextGetInput(context, i, shape.get(), status);
    if (Ok(status)) TF_ShapeInferenceContextSetOutput(context, i, shape.get(), status);
  }
}

const bool registered = Register({
    {"HetReduce",
     {"values: T", "order: resource"},
     {"sums: T"},
     {"T: list({float, double, int32, int64})", "label: string", "mean: bool"},
     &SameShapes},
    {"HetGather",
     {"value: T", "order: resource"},
     {"values: T"},
     {"T: numbertype", "label: string"},
     &UnknownShape},
    {"HetAccumulate",
     {"tickets: float", "learning_rates: float", "scale: float", "order: resource"},
     {"done: float"},
     {"tables: list(string)", "specs: string", "label: string"},
     &ScalarShape},
});

const bool with_kernels =
    (RegisterCpuKernel<Kernel<Reduce>>("HetReduce"), RegisterCpuKernel<Kernel<Gather>>("HetGather"),
     RegisterCpuKernel<Kernel<AccumulateGrad>>("HetAccumulate"), true);

}  // namespace
}  // namespace het
