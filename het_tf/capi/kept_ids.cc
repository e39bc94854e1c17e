#include "het_tf/capi/kept_ids.h"

#include <algorithm>

namespace het {

KeptIds::KeptIds(const CallSpec& spec, const int64_t* const* ids, const size_t* counts,
                 const bool* const* masks)
    : spec_(spec), counts_(counts), masks_(masks), features_(spec.FeaturesOf(ids, counts)) {
  for (size_t f = 0; masks != nullptr && f < features_.size(); ++f) {
    if (masks[f] == nullptr) continue;
    std::vector<int64_t>& kept = ids_.emplace_back();
    for (size_t i = 0; i < counts[f]; ++i) {
      if (masks[f][i]) kept.push_back(ids[f][i]);
    }
    features_[f].ids = {kept.data(), kept.size()};  // which stay where they are when ids_ grows
  }
}

void KeptIds::Spread(float* const* rows) const {
  for (size_t f = 0; masks_ != nullptr && f < features_.size(); ++f) {
    if (masks_[f] == nullptr) continue;
    const size_t dim = spec_.schemas()[features_[f].table]->dim();
    size_t kept = features_[f].ids.size();
    for (size_t i = counts_[f]; i-- > 0;) {  // a row moves to a place behind its own, or stays
      float* const row = rows[f] + i * dim;
      if (!masks_[f][i]) {
        std::fill_n(row, dim, 0.0f);
      } else if (--kept != i) {
        std::copy_n(rows[f] + kept * dim, dim, row);
      }
    }
  }
}

std::vector<const float*> KeptIds::Chosen(const float* const* gradients) {
  std::vector<const float*> chosen(gradients, gradients + features_.size());
  for (size_t f = 0; masks_ != nullptr && f < features_.size(); ++f) {
    if (masks_[f] == nullptr) continue;
    const size_t dim = spec_.schemas()[features_[f].table]->dim();
    std::vector<float>& kept = rows_.emplace_back();
    for (size_t i = 0; i < counts_[f]; ++i) {
      if (masks_[f][i]) kept.insert(kept.end(), gradients[f] + i * dim, gradients[f] + (i + 1) * dim);
    }
    chosen[f] = kept.data();
  }
  return chosen;
}

}  // namespace het
