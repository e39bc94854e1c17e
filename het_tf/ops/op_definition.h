// What the files that define ops share: shapes with owners, and the registration.
#pragma once

#include <cstdlib>
#include <initializer_list>
#include <memory>

#include "tensorflow/c/ops.h"
#include "tensorflow/c/tf_status.h"

namespace het {

struct DeleteHandle {
  void operator()(TF_ShapeHandle* handle) const { TF_DeleteShapeHandle(handle); }
};
using Shape = std::unique_ptr<TF_ShapeHandle, DeleteHandle>;

inline bool Ok(const TF_Status* status) { return TF_GetCode(status) == TF_OK; }

inline void UnknownShape(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeInferenceContextSetUnknownShape(context, status);
}

// One output, a scalar.
inline void ScalarShape(TF_ShapeInferenceContext* context, TF_Status* status) {
  const Shape scalar(TF_ShapeInferenceContextScalar(context));
  TF_ShapeInferenceContextSetOutput(context, 0, scalar.get(), status);
}

using ShapeFunction = void (*)(TF_ShapeInferenceContext* context, TF_Status* status);

inline void Register(TF_OpDefinitionBuilder* builder, ShapeFunction shape) {
  // All are stateful: TensorFlow may neither merge, drop nor reorder them.
  TF_OpDefinitionBuilderSetIsStateful(builder, true);
  TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, shape);
  TF_Status* status = TF_NewStatus();
  TF_RegisterOpDefinition(builder, status);
  if (!Ok(status)) std::abort();  // only a programming error gets here, at load time
  TF_DeleteStatus(status);
}

struct OpDefinition {
  using Words = std::initializer_list<const char*>;
  const char* name;
  Words inputs;  // "NAME: TYPE" each, as outputs and attributes
  Words outputs;
  Words attributes;
  ShapeFunction shape;
};

// Registers ops when the library is loaded.
inline bool Register(std::initializer_list<OpDefinition> ops) {
  for (const OpDefinition& op : ops) {
    TF_OpDefinitionBuilder* const builder = TF_NewOpDefinitionBuilder(op.name);
    for (const char* input : op.inputs) TF_OpDefinitionBuilderAddInput(builder, input);
    for (const char* output : op.outputs) TF_OpDefinitionBuilderAddOutput(builder, output);
    for (const char* attribute : op.attributes) TF_OpDefinitionBuilderAddAttr(builder, attribute);
    Register(builder, op.shape);
  }
  return true;
}

}  // namespace het
