// Moving rows between tables and tensors.
#pragma once

#include <cstdint>

#include "het_tf/core/base/span.h"
#include "het_tf/core/plan/batch_plan.h"

namespace het {

// out[feature][index] = *rows[unique] for every entry of the group, a row being dim floats. Repeated reads
// hit the L1 and L2 caches; there is no intermediate copy.
void CopyToFeatures(const BatchPlan& plan, const BatchPlan::Group& group, const float* const* rows,
                    size_t dim, Span<float* const> out);

// Writes zeros where the feature's id is padding; out: its rows.
void ZeroPadding(const FeatureIds& feature, size_t dim, float* out);

// sums[unique] = sum of gradients[feature][index] over the entries of the group, in their order, skipping
// features with active[feature] == 0; touched[unique] tells whether any entry was summed.
void SumGroup(const BatchPlan& plan, const BatchPlan::Group& group, Span<const float* const> gradients,
              const uint8_t* active, size_t dim, float* sums, uint8_t* touched);

// *squares = the sum of the squares of values. Returns false if a value is not finite.
bool SumSquares(const float* values, size_t n, double* squares);

}  // namespace het
