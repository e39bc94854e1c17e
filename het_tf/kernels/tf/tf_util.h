// The parts of TensorFlow's C API that kernels need, with owning types. The C++ API's ABI changes with every
// release; the C API's does not.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "het_tf/core/base/memory_edge.h"
#include "het_tf/core/base/span.h"
#include "het_tf/core/base/status.h"
#include "tensorflow/c/kernels.h"
#include "tensorflow/c/tf_status.h"
#include "tensorflow/c/tf_tensor.h"

namespace het {

struct TfDelete {
  void operator()(TF_Status* status) const { TF_DeleteStatus(status); }
  void operator()(TF_Tensor* tensor) const { TF_DeleteTensor(tensor); }
};
using TfStatus = std::unique_ptr<TF_Status, TfDelete>;
using TfTensor = std::unique_ptr<TF_Tensor, TfDelete>;

inline TfStatus NewTfStatus() { return TfStatus(TF_NewStatus()); }

// het::Code has TensorFlow's numbers.
inline Status FromTf(const TF_Status* status) {
  return Status(static_cast<Code>(TF_GetCode(status)), TF_Message(status));
}
inline void ToTf(const Status& status, TF_Status* out) {
  TF_SetStatus(out, static_cast<TF_Code>(status.code()), status.message().c_str());
}

// Returns input `index` of the running op.
Result<TfTensor> GetInput(TF_OpKernelContext* context, int index);
// Allocates output `index`, of `elements` elements of `element_size` bytes.
Result<TfTensor> NewOutput(TF_OpKernelContext* context, int index, TF_DataType type,
                           Span<const int64_t> shape, size_t element_size);
// Sets a scalar output.
template <typename T>
Status SetScalar(TF_OpKernelContext* context, int index, TF_DataType type, T value) {
  HET_ASSIGN_OR_RETURN(const TfTensor tensor, NewOutput(context, index, type, {}, sizeof(T)));
  *static_cast<T*>(TF_TensorData(tensor.get())) = value;
  return Status();
}

// Returns the element of a string scalar. Valid as long as the tensor.
Result<std::string_view> GetStringScalar(const TF_Tensor* tensor);

std::vector<int64_t> ShapeOf(const TF_Tensor* tensor);
std::string ShapeText(Span<const int64_t> shape);

Result<int32_t> GetIntAttr(TF_OpKernelConstruction* context, const char* name);
Result<bool> GetBoolAttr(TF_OpKernelConstruction* context, const char* name);
Result<std::string> GetStringAttr(TF_OpKernelConstruction* context, const char* name);
Result<std::vector<std::string>> GetStringListAttr(TF_OpKernelConstruction* context, const char* name);

// Calls body() and reports its error, or its std::bad_alloc, to TensorFlow; exceptions do not cross the
// boundary.
template <typename Context, typename Body>
void Guarded(Context* context, void (*fail)(Context*, TF_Status*), const Body& body) {
  Status status;
  try {
    status = AtMemoryEdge(body);
  } catch (const std::exception& error) {
    status = Status(Code::kInternal, error.what());
  }
  if (status.ok()) return;
  const TfStatus tf_status = NewTfStatus();
  ToTf(status, tf_status.get());
  fail(context, tf_status.get());
}

// Registers the CPU kernel of `Kernel`, which has
//   static Result<std::unique_ptr<Kernel>> Create(TF_OpKernelConstruction*);  Status
//   Compute(TF_OpKernelContext*);
template <typename Kernel>
void RegisterCpuKernel(const char* op) {
  TF_KernelBuilder* builder = TF_NewKernelBuilder(
      op, "CPU",
      [](TF_OpKernelConstruction* context) -> void* {
        Kernel* kernel = nullptr;
        Guarded(context, &TF_OpKernelConstruction_Failure, [&] {
          auto created = Kernel::Create(context);
          if (created.ok()) kernel = created.value().release();
          return created.status();
        });
        return kernel;
      },
      [](void* kernel, TF_OpKernelContext* context) {
        Guarded(context, &TF_OpKernelContext_Failure,
                [&] { return static_cast<Kernel*>(kernel)->Compute(context); });
      },
      [](void* kernel) { delete static_cast<Kernel*>(kernel); });
  const TfStatus status = NewTfStatus();
  TF_RegisterKernelBuilder(op, builder, status.get());
  if (TF_GetCode(status.get()) != TF_OK) std::abort();  // only a programming error, at load time
}

}  // namespace het
