// The arguments `ids` and `counts` of the functions of a call (capi/steps.h), as the engine takes them.
#pragma once

#include <vector>

#include "het_tf/core/engine/call_spec.h"

namespace het {

// ids[f]: counts[f] of feature f.
inline std::vector<FeatureIds> FeaturesOf(const CallSpec& spec, const int64_t* const* ids,
                                          const size_t* counts) {
  std::vector<FeatureIds> features;
  for (size_t f = 0; f < spec.features().size(); ++f) {
    features.push_back({spec.features()[f].table, {ids[f], counts[f]}, spec.features()[f].padding_id});
  }
  return features;
}

}  // namespace het
