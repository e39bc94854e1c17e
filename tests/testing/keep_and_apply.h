// A lookup's gradient, kept and applied at once.
#pragma once

#include <memory>
#include <vector>

#include "het_tf/core/engine/steps.h"

namespace het::testing {

// Takes the gradient of a lookup by a variable of all its tables, and applies it.
inline Status KeepAndApply(Steps* steps, const BatchCall& call, const ApplyArgs& args) {
  constexpr uint64_t kVariable = 1;
  const std::vector<uint64_t> variables(call.tables.size(), kVariable);
  std::shared_ptr<DeviceGradient> device;
  if (call.tables[0]->options.on_device()) {
    device = std::make_shared<DeviceGradient>();
    device->features.assign(call.features.begin(), call.features.end());
    device->gradients.assign(args.gradients.begin(), args.gradients.end());
    device->stream = call.memory.stream;
    device->on_host = !call.memory.on_device;
  }
  std::vector<float> tickets(2 * KeptGradients::kSlots);
  HET_RETURN_IF_ERROR(steps->Keep(call, args, variables, 0, device, tickets.data()));
  return steps->ApplyKept({kVariable, call.tables, tickets, args.learning_rates, args.scale});
}

// The gradients of one feature.
inline Status KeepAndApply(Steps* steps, const BatchCall& call, uint64_t token,
                           const std::vector<float>& gradients, float rate = 1) {
  const float* const of_feature = gradients.data();
  ApplyArgs args;
  args.token = token;
  args.gradients = {&of_feature, 1};
  args.learning_rates = {&rate, 1};
  return KeepAndApply(steps, call, args);
}

}  // namespace het::testing
