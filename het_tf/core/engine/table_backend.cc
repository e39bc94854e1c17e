#include "het_tf/core/engine/table_backend.h"

#include <utility>

#include "het_tf/core/plan/row_ops.h"

namespace het {

void TableBackend::Plan(StepCall* call, const PartitionId& store, Span<float* const> out) {
  if (std::exchange(call->ready, true)) return;
  Step* const step = call->step;
  const BatchCall& batch = call->call;
  if (!call->planned) step->Scatter(batch, store, call->pool);
  step->PrepareRows();
  step->PrepareValues(batch);
  for (size_t f = 0; f < out.size(); ++f) {
    ZeroPadding(batch.features[f], batch.tables[batch.features[f].table]->schema->dim(), out[f]);
  }
}

}  // namespace het
