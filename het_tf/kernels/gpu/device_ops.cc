// HetLookup and HetApplyGrad on a GPU: pass TensorFlow's device memory to kernels/device_node.h. The engine
// is in libhet_tf.so, which TensorFlow has loaded before.
//
// Only this library uses TensorFlow's C++ API, because the C API does not give the stream of a CUDA device.
// The C++ API differs between releases. So this file is minimal, libhet_tf_gpu.so records the release it was
// built for, and Python loads it only into that release (python/device.py).
#include <limits>
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

// The base of both ops: the node, and calls that catch all exceptions.
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
    dims_.resize(tables.size());
    for (int f = 0; f < features_; ++f) {
      OP_REQUIRES_OK(context, FromHet(HetNodeDim(node_, static_cast<size_t>(f), &dims_[f])));
    }
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
    std::vector<const int64_t*> data;  // in device memory
    std::vector<int64_t> counts;
  };

  virtual absl::Status Run(OpKernelContext* context) = 0;

  Ids GetIds(OpKernelContext* context) const {
    Ids ids;
    for (int f = 0; f < features_; ++f) {
      const Tensor& tensor = context->input(f);
      ids.data.push_back(static_cast<const int64_t*>(tensor.data()));
      ids.counts.push_back(tensor.NumElements());
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
  // Inputs: ids * N, anchor, hints * N, layer. Outputs: rows * N, token, probe.
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
    Tensor *token = nullptr, *probe = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(features_, TensorShape(), &token));
    TF_RETURN_IF_ERROR(context->allocate_output(features_ + 1, TensorShape(), &probe));
    int64_t number = 0;
    TF_RETURN_IF_ERROR(FromHet(HetDeviceLookup(node_, ids.data.data(), ids.counts.data(), ids.data.size(),
                                               rows.data(), training_, stream, &number)));
    *static_cast<int64_t*>(token->data()) = number;
    *static_cast<float*>(probe->data()) = 0;
    return absl::OkStatus();
  }

 private:
  bool training_ = false;
};

class ApplyGradOp final : public DeviceOp {
 public:
  explicit ApplyGradOp(OpKernelConstruction* context) : DeviceOp(context) {}

 protected:
  // Inputs: ids * N, grads * N, token, learning_rates, scale, loss_scale. Output: anchor_grad.
  absl::Status Run(OpKernelContext* context) override {
    void* stream = nullptr;
    TF_RETURN_IF_ERROR(GetStream(context, &stream));
    const Ids ids = GetIds(context);
    std::vector<const float*> gradients;
    for (int f = 0; f < features_; ++f) {
      const Tensor& tensor = context->input(features_ + f);
      const TensorShape wanted = RowsShape(context, f);
      if (tensor.shape() != wanted) {
        return Wrong("the gradient of feature " + std::to_string(f), tensor.shape(), wanted.DebugString());
      }
      gradients.push_back(static_cast<const float*>(tensor.data()));
    }
    const int first = 2 * features_;
    const char* const names[] = {"token", "learning_rates", "scale", "loss_scale"};
    for (const int scalar : {0, 2, 3}) {
      const TensorShape& shape = context->input(first + scalar).shape();
      if (shape.num_elements() != 1) return Wrong(names[scalar], shape, "a scalar");
    }
    const Tensor& rates = context->input(first + 1);
    Tensor* anchor = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, TensorShape(), &anchor));
    int skipped = 0;
    TF_RETURN_IF_ERROR(FromHet(
        HetDeviceApply(node_, ids.data.data(), ids.counts.data(), ids.data.size(), gradients.data(),
                       *static_cast<const int64_t*>(context->input(first).data()),
                       static_cast<const float*>(rates.data()), static_cast<size_t>(rates.NumElements()),
                       *static_cast<const float*>(context->input(first + 2).data()),
                       *static_cast<const float*>(context->input(first + 3).data()), stream, &skipped)));
    *static_cast<float*>(anchor->data()) = skipped ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
    return absl::OkStatus();
  }
};

// In device memory: ids, rows, grads, and the unused anchor: it is a variable there, and in host memory each
// step would wait for its copy.
REGISTER_KERNEL_BUILDER(Name("HetLookup")
                            .Device(tensorflow::DEVICE_GPU)
                            .HostMemory("hints")
                            .HostMemory("layer")
                            .HostMemory("token")
                            .HostMemory("probe"),
                        LookupOp);
REGISTER_KERNEL_BUILDER(Name("HetApplyGrad")
                            .Device(tensorflow::DEVICE_GPU)
                            .HostMemory("token")
                            .HostMemory("learning_rates")
                            .HostMemory("scale")
                            .HostMemory("loss_scale")
                            .HostMemory("anchor_grad"),
                        ApplyGradOp);

}  // namespace
}  // namespace het
