// What the files that define ops share: shapes with owners, and the registration.
#pragma once

#include <cstdlib>
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

inline void Register(TF_OpDefinitionBuilder* builder,
                     void (*shape)(TF_ShapeInferenceContext* context, TF_Status* status)) {
  // All are stateful: TensorFlow may neither merge, drop nor reorder them.
  TF_OpDefinitionBuilderSetIsStateful(builder, true);
  TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, shape);
  TF_Status* status = TF_NewStatus();
  TF_RegisterOpDefinition(builder, status);
  if (!Ok(status)) std::abort();  // only a programming error gets here, at load time
  TF_DeleteStatus(status);
}

}  // namespace het
