// The ids of a call (capi/steps.h) but those that masks leave out: the engine never sees these.
//
//   ids  [5, 6, 7]   mask [1, 0, 1]   the engine's ids  [5, 7]
//   rows of the engine     [r5, r7, -]     Spread: [r5, 0, r7]
//   gradients [g5, g6, g7]                 Chosen: [g5, g7]
#pragma once

#include <vector>

#include "het_tf/core/engine/call_spec.h"

namespace het {

class KeptIds {
 public:
  // ids[f]: counts[f] of feature f. masks: null, or for each feature null or counts[f] bools. All are the
  // caller's, and outlive this.
  KeptIds(const CallSpec& spec, const int64_t* const* ids, const size_t* counts, const bool* const* masks);
  KeptIds(const KeptIds&) = delete;
  KeptIds& operator=(const KeptIds&) = delete;

  const std::vector<FeatureIds>& features() const { return features_; }
  // rows[f]: room for counts[f] rows, which begins with those of the kept ids.
  void Spread(float* const* rows) const;
  // gradients[f]: counts[f] rows. Of the features that have a mask the rows are copied.
  std::vector<const float*> Chosen(const float* const* gradients);

 private:
  const CallSpec& spec_;
  const size_t* const counts_;
  const bool* const* const masks_;
  std::vector<FeatureIds> features_;
  std::vector<std::vector<int64_t>> ids_;  // of features that have a mask
  std::vector<std::vector<float>> rows_;   // their gradients
};

}  // namespace het
