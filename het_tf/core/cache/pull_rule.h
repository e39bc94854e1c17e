// What a training lookup asks the store about a valid copy of a row: one rule for caches in host memory
// (sync_policy.h) and on a device (kernels/cuda/lookup.cu).
//
//   trusted   it is subscribed, and the newest notifications are recent: nothing, except for the next ones
//   moved     the store has named it: fetch it
//   else      check its clock, if reads are bounded
#pragma once

#include <cstdint>

#include "het_tf/core/base/hash.h"

namespace het {

enum class Pull : uint8_t { kNothing, kCheck, kFetch, kNotified };

HET_HOST_DEVICE inline Pull PullOf(bool bounded, bool moved, bool trusted) {
  if (trusted) return Pull::kNotified;
  if (moved) return Pull::kFetch;
  return bounded ? Pull::kCheck : Pull::kNothing;
}

}  // namespace het
