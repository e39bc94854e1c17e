#include "het_tf/kernels/tf/tf_util.h"

#include "tensorflow/core/platform/ctstring.h"

namespace het {

Result<TfTensor> GetInput(TF_OpKernelContext* context, int index) {
  const TfStatus status = NewTfStatus();
  TF_Tensor* tensor = nullptr;
  TF_GetInput(context, index, &tensor, status.get());
  TfTensor owned(tensor);
  if (TF_GetCode(status.get()) != TF_OK) return FromTf(status.get());
  return owned;
}

Result<TfTensor> NewOutput(TF_OpKernelContext* context, int index, TF_DataType type,
                           Span<const int64_t> shape, size_t element_size) {
  size_t bytes = element_size;
  for (int64_t extent : shape) bytes *= static_cast<size_t>(extent);
  const TfStatus status = NewTfStatus();
  TfTensor tensor(TF_AllocateOutput(context, index, type, shape.data(), static_cast<int>(shape.size()), bytes,
                                    status.get()));
  if (TF_GetCode(status.get()) != TF_OK) return FromTf(status.get());
  return tensor;
}

// libtensorflow_framework.so does not export tf_tstring.h's functions. Those of ctstring.h are inline plain
// C, for the tensor's own format, which has not changed since TensorFlow 2.3.
Result<std::string_view> GetStringScalar(const TF_Tensor* tensor) {
  if (TF_TensorType(tensor) != TF_STRING || TF_NumDims(tensor) != 0) {
    const std::vector<int64_t> shape = ShapeOf(tensor);
    return InvalidArgument("a string scalar is needed, and the shape is " +
                           ShapeText({shape.data(), shape.size()}));
  }
  const auto* text = static_cast<const TF_TString*>(TF_TensorData(tensor));
  return std::string_view(TF_TString_GetDataPointer(text), TF_TString_GetSize(text));
}

std::vector<int64_t> ShapeOf(const TF_Tensor* tensor) {
  std::vector<int64_t> shape(TF_NumDims(tensor));
  for (size_t i = 0; i < shape.size(); ++i) shape[i] = TF_Dim(tensor, static_cast<int>(i));
  return shape;
}

std::string ShapeText(Span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

Result<int32_t> GetIntAttr(TF_OpKernelConstruction* context, const char* name) {
  const TfStatus status = NewTfStatus();
  int32_t value = 0;
  TF_OpKernelConstruction_GetAttrInt32(context, name, &value, status.get());
  if (TF_GetCode(status.get()) != TF_OK) return FromTf(status.get());
  return value;
}

Result<bool> GetBoolAttr(TF_OpKernelConstruction* context, const char* name) {
  const TfStatus status = NewTfStatus();
  TF_Bool value = 0;
  TF_OpKernelConstruction_GetAttrBool(context, name, &value, status.get());
  if (TF_GetCode(status.get()) != TF_OK) return FromTf(status.get());
  return value != 0;
}

Result<std::string> GetStringAttr(TF_OpKernelConstruction* context, const char* name) {
  const TfStatus status = NewTfStatus();
  int32_t list_size = 0, bytes = 0;
  TF_OpKernelConstruction_GetAttrSize(context, name, &list_size, &bytes, status.get());
  if (TF_GetCode(status.get()) != TF_OK) return FromTf(status.get());
  std::string value(static_cast<size_t>(bytes), '\0');
  TF_OpKernelConstruction_GetAttrString(context, name, value.data(), value.size(), status.get());
  if (TF_GetCode(status.get()) != TF_OK) return FromTf(status.get());
  return value;
}

Result<std::vector<std::string>> GetStringListAttr(TF_OpKernelConstruction* context, const char* name) {
  const TfStatus status = NewTfStatus();
  int32_t count = 0, bytes = 0;
  TF_OpKernelConstruction_GetAttrSize(context, name, &count, &bytes, status.get());
  if (TF_GetCode(status.get()) != TF_OK) return FromTf(status.get());
  std::vector<char*> values(static_cast<size_t>(count));
  std::vector<size_t> lengths(values.size());
  std::vector<char> storage(static_cast<size_t>(bytes) + 1);
  TF_OpKernelConstruction_GetAttrStringList(context, name, values.data(), lengths.data(), count,
                                            storage.data(), storage.size(), status.get());
  if (TF_GetCode(status.get()) != TF_OK) return FromTf(status.get());
  std::vector<std::string> list;
  for (size_t i = 0; i < values.size(); ++i) list.emplace_back(values[i], lengths[i]);
  return list;
}

}  // namespace het
