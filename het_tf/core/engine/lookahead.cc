#include "het_tf/core/engine/lookahead.h"

#include "het_tf/core/engine/table_backend.h"

namespace het {

Status Lookahead::Begin(StepCall* call, bool training) {
  if (training) call->number = steps_->Reserve();
  return Status();
}

}  // namespace het
