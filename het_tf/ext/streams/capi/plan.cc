#include "het_tf/ext/streams/capi/plan.h"

#include "het_tf/core/base/answer.h"
#include "het_tf/core/engine/call_spec.h"
#include "het_tf/ext/streams/cc/window.h"

int HetCallPlan(void* call, const int64_t* const* ids, const size_t* counts, size_t window) {
  return het::Answer([&]() -> het::Status {
    het::CallSpec& spec = *static_cast<het::CallSpec*>(call);
    if (het::FindEngine(spec.name_space()) == nullptr) return het::Status();  // Resolve would connect
    const auto resolved = spec.Resolve();
    if (!resolved.ok()) return het::Status();
    const std::vector<het::FeatureIds> features = spec.FeaturesOf(ids, counts);
    het::Window& planned = het::Window::Of(resolved.value().engine->lookahead());
    return planned.Plan({*resolved.value().tables, features, spec.signature()}, window);
  });
}
