#include "het_tf/ext/workers/capi/accumulate.h"

#include "het_tf/core/base/answer.h"
#include "het_tf/core/base/interrupt.h"
#include "het_tf/ext/workers/cc/accumulate.h"

int HetCallAccumulate(void* call, const char* label, const float* tickets, const float* rates, float scale) {
  const het::Interrupts interrupts(het::Interrupts::By::kFunction);
  return het::Answer([&]() -> het::Status {
    HET_ASSIGN_OR_RETURN(const std::shared_ptr<het::Mesh> mesh, het::ConnectedMesh());
    auto* spec = static_cast<het::CallSpec*>(call);
    return het::Accumulate(mesh.get(), label, spec, {tickets, size_t{2} * het::KeptGradients::kSlots},
                           {rates, spec->variables().size()}, scale);
  });
}
