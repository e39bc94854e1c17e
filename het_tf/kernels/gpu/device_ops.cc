// HetLookup, HetKeepGrad and HetApplyGrad on a GPU: pass TensorFlow's device memory to kernels/device_node.h.
// The engine is in libhet_tf.so, which TensorFlow has loaded before.
//
// Only this library uses TensorFlow's C++ API, because the C API does not give the stream of a CUDA device.
// The C++ API differs between releases. So this file is minimal, libhet_tf_gpu.so records the release it was
// built for, and Python loads it only into that release (ext/gpu/python/device.py).
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "het_tf/kernels/device_node.h"
#include "tensorflow/c/kernels.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "xla/stream_executor/stream.h"

// Python reads this from the file before it loads the library.
extern "C" __attribute__((used, visibility("default"))) const char kHetGpuOpsFor[] =
    "het_tf's GPU ops are built for TensorFlow " HET_TF_HEADERS ";";

namespace het {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// het::Code has the numbers of absl::StatusCode.
absl::Status FromHet(int code) {
  return code == 0 ? absl::OkStatus() : absl::Status(static_cast<absl::StatusCode>(code), HetText());
}

// Returns a cudaStream_t on TensorFlow's own GPU device, an SP_Stream on a pluggable one.
absl::Status GetStream(OpKernelContext* context, void** stream) {
  tensorflow::DeviceContext* const device = context->op_device_context();
  if (device != nullptr && device->stream() != nullptr) {
    *stream = device->stream()->platform_specific_handle().stream;
    if (*stream != nullptr) return absl::OkStatus();
    TF_Status* const status = TF_NewStatus();
    *stream = TF_GetStream(reinterpret_cast<TF_OpKernelContext*>(context), status);
    TF_DeleteStatus(status);
    if (*stream != nullptr) return absl::OkStatus();
  }
  return absl::InternalError("het_tf: the device " + context->device()->name() + " gives its ops no stream");
}

// The base of the ops: the node, and calls that catch all exceptions.
class DeviceOp : public tensorflow::OpKernel {
 public:
  explicit DeviceOp(OpKernelConstruction* context) : OpKernel(context) {
    std::vector<std::string> tables;
    std::string specs;
    OP_REQUIRES_OK(context, context->GetAttr("tables", &tables));
    OP_REQUIRES_OK(context, context->GetAttr("specs", &specs));
    std::vector<const char*> names;
    for (const std::string& table : tables) names.push_back(table.c_str());
    OP_REQUIRES_OK(context, FromHet(HetNodeCreate(names.data(), names.size(), specs.c_str(), &node_)));
    features_ = static_cast<int>(tables.size());
    for (size_t f = 0; f < tables.size(); ++f) dims_.push_back(HetNodeDim(node_, f));
  }
  ~DeviceOp() override { HetNodeDelete(node_); }

  // Waits for the device and the store. TensorFlow assumes that GPU kernels only launch work, and would
  // otherwise delay other ready ops.
  bool IsExpensive() final { return true; }

  void Compute(OpKernelContext* context) final {
    try {
      OP_REQUIRES_OK(context, Run(context));
    } catch (const std::bad_alloc&) {
      context->SetStatus(
          absl::ResourceExhaustedError("out of memory in " + type_string() + "; no row was changed"));
    }
  }

 protected:
  struct Ids {
    std::vector<const int64_t*> data;  // in host memory
    std::vector<size_t> counts;
  };

  virtual absl::Status Run(OpKernelContext* context) = 0;

  Ids GetIds(OpKernelContext* context) const {
    Ids ids;
    for (int f = 0; f < features_; ++f) {
      const Tensor& tensor = context->input(f);
      ids.data.push_back(static_cast<const int64_t*>(tensor.data()));
      ids.counts.push_back(static_cast<size_t>(tensor.NumElements()));
    }
    return ids;
  }
  TensorShape RowsShape(OpKernelContext* context, int f) const {
    TensorShape shape = context->input(f).shape();
    shape.AddDim(dims_[f]);
    return shape;
  }
  absl::Status Wrong(const std::string& what, const TensorShape& given, const std::string& wanted) const {
    return absl::InvalidArgumentError(type_string() + ": " + what + " has shape " + given.DebugString() +
                                      "; it must be " + wanted);
  }

  HetNode* node_ = nullptr;
  int features_ = 0;
  std::vector<int64_t> dims_;  // dim of each feature's rows
};

class LookupOp final : public DeviceOp {
 public:
  explicit LookupOp(OpKernelConstruction* context) : DeviceOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("training", &training_));
  }

 protected:
  // Inputs: ids * N, anchor, hints * N, layer. Outputs: rows * N, token.
  absl::Status Run(OpKernelContext* context) override {
    void* stream = nullptr;
    TF_RETURN_IF_ERROR(GetStream(context, &stream));
    const Ids ids = GetIds(context);
    std::vector<float*> rows;
    for (int f = 0; f < features_; ++f) {
      // The static shape of the rows came from the hint, so it must match.
      const TensorShape& hint = context->input(features_ + 1 + f).shape();
      if (hint.dims() != 2 || hint.dim_size(1) != dims_[f]) {
        return Wrong("the hint of feature " + std::to_string(f), hint,
                     "[0," + std::to_string(dims_[f]) + "]");
      }
      Tensor* tensor = nullptr;
      TF_RETURN_IF_ERROR(context->allocate_output(f, RowsShape(context, f), &tensor));
      rows.push_back(static_cast<float*>(tensor->data()));
    }
    Tensor* token = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(features_, TensorShape(), &token));
    int64_t number = 0;
    TF_RETURN_IF_ERROR(FromHet(
        HetDeviceLookup(node_, ids.data.data(), ids.counts.data(), rows.data(), training_, stream, &number)));
    *static_cast<int64_t*>(token->data()) = number;
    return absl::OkStatus();
  }

 private:
  bool training_ = false;
};

class KeepGradOp final : public DeviceOp {
 public:
  explicit KeepGradOp(OpKernelConstruction* context) : DeviceOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("worker", &worker_));
  }

 protected:
  // Inputs: ids * N, grads * N, token, norm. Output: tickets.
  absl::Status Run(OpKernelContext* context) override {
    void* stream = nullptr;
    TF_RETURN_IF_ERROR(GetStream(context, &stream));
    const Ids ids = GetIds(context);
    // A copy of a tensor shares its memory, which the gradient needs until it is applied.
    auto memory = std::make_unique<std::vector<Tensor>>();
    std::vector<const float*> gradients;
    for (int f = 0; f < features_; ++f) {
      const Tensor& tensor = context->input(features_ + f);
      const TensorShape wanted = RowsShape(context, f);
      if (tensor.shape() != wanted) {
        return Wrong("the gradient of feature " + std::to_string(f), tensor.shape(), wanted.DebugString());
      }
      gradients.push_back(static_cast<const float*>(tensor.data()));
      memory->push_back(context->input(f));
      memory->push_back(tensor);
    }
    const int first = 2 * features_;
    const char* const names[] = {"token", "norm"};
    for (const int scalar : {0, 1}) {
      const TensorShape& shape = context->input(first + scalar).shape();
      if (shape.num_elements() != 1) return Wrong(names[scalar], shape, "a scalar");
    }
    const auto rows = static_cast<int64_t>(HetNodeTicketRows(node_));
    Tensor* tickets = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, TensorShape({rows, 2}), &tickets));
    return FromHet(HetDeviceKeep(
        node_, ids.data.data(), ids.counts.data(), gradients.data(),
        *static_cast<const int64_t*>(context->input(first).data()),
        *static_cast<const float*>(context->input(first + 1).data()), static_cast<uint32_t>(worker_),
        memory.release(), [](void* owned) { delete static_cast<std::vector<Tensor>*>(owned); }, stream,
        static_cast<float*>(tickets->data())));
  }

 private:
  int32_t worker_ = 0;
};

class ApplyGradOp final : public DeviceOp {
 public:
  explicit ApplyGradOp(OpKernelConstruction* context) : DeviceOp(context) {}

 protected:
  // Inputs: tickets, learning_rates, scale. Output: done.
  absl::Status Run(OpKernelContext* context) override {
    const Tensor &tickets = context->input(0), &rates = context->input(1);
    const TensorShape& scale = context->input(2).shape();
    if (scale.num_elements() != 1) return Wrong("scale", scale, "a scalar");
    Tensor* done = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, TensorShape(), &done));
    *static_cast<float*>(done->data()) = 0;
    return FromHet(HetDeviceApply(
        node_, static_cast<const float*>(tickets.data()), static_cast<size_t>(tickets.NumElements()),
        static_cast<const float*>(rates.data()), static_cast<size_t>(rates.NumElements()),
        *static_cast<const float*>(context->input(2).data())));
  }
};

// In device memory: rows, grads, and the unused anchor: it is a variable there, and in host memory each step
// would wait for its copy. Ids come from the host, so a lookup need not wait for what TensorFlow has queued.
REGISTER_KERNEL_BUILDER(Name("HetLookup")
                            .Device(tensorflow::DEVICE_GPU)
                            .HostMemory("ids")
                            .HostMemory("hints")
                            .HostMemory("token"),
                        LookupOp);
REGISTER_KERNEL_BUILDER(Name("HetKeepGrad")
                            .Device(tensorflow::DEVICE_GPU)
                            .HostMemory("ids")
                            .HostMemory("token")
                            .HostMemory("norm")
                            .HostMemory("tickets"),
                        KeepGradOp);
REGISTER_KERNEL_BUILDER(Name("HetApplyGrad")
                            .Device(tensorflow::DEVICE_GPU)
                            .HostMemory("tickets")
                            .HostMemory("learning_rates")
                            .HostMemory("scale")
                            .HostMemory("done"),
                        ApplyGradOp);

}  // namespace
}  // namespace het
