#include "het_tf/core/plan/row_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "het_tf/core/base/prefetch.h"

namespace het {
namespace {

// Prefetch distance, in entries.
constexpr size_t kAhead = 12;

// Calls fn with dim as a compile-time constant for common dims, else 0: a copy of constant size is a few
// vector moves, one of variable size is a function call.
template <typename Fn>
void WithDim(size_t dim, Fn fn) {
  switch (dim) {
    case 8:
      return fn(std::integral_constant<size_t, 8>());
    case 16:
      return fn(std::integral_constant<size_t, 16>());
    case 32:
      return fn(std::integral_constant<size_t, 32>());
    case 64:
      return fn(std::integral_constant<size_t, 64>());
    default:
      return fn(std::integral_constant<size_t, 0>());
  }
}

}  // namespace

void CopyToFeatures(const BatchPlan& plan, const BatchPlan::Group& group, const float* const* rows,
                    size_t dim, Span<float* const> out) {
  const BatchPlan::Entry* const entry = plan.entry(group);
  const uint32_t* const inverse = plan.inverse(group);
  WithDim(dim, [&](auto fixed) {
    const size_t d = fixed.value != 0 ? fixed.value : dim;
    for (size_t e = 0; e < group.entries; ++e) {
      if (e + kAhead < group.entries) {
        const BatchPlan::Entry& next = entry[e + kAhead];
        Prefetch(rows[inverse[e + kAhead]], d * sizeof(float));
        Prefetch<true>(out[next.feature] + next.index * d, d * sizeof(float));
      }
      std::memcpy(out[entry[e].feature] + entry[e].index * d, rows[inverse[e]], d * sizeof(float));
    }
  });
}

void ZeroPadding(const FeatureIds& feature, size_t dim, float* out) {
  if (!feature.padding_id) return;
  for (size_t i = 0; i < feature.ids.size(); ++i) {
    if (feature.ids[i] == *feature.padding_id) std::memset(out + i * dim, 0, dim * sizeof(float));
  }
}

void SumGroup(const BatchPlan& plan, const BatchPlan::Group& group, Span<const float* const> gradients,
              const uint8_t* active, size_t dim, float* sums, uint8_t* touched) {
  const BatchPlan::Entry* entry = plan.entry(group);
  const uint32_t* inverse = plan.inverse(group);
  std::memset(sums, 0, group.uniques * dim * sizeof(float));
  std::memset(touched, 0, group.uniques);
  WithDim(dim, [&](auto fixed) {
    const size_t d = fixed.value != 0 ? fixed.value : dim;
    for (size_t e = 0; e < group.entries; ++e) {
      if (e + kAhead < group.entries) {
        const BatchPlan::Entry& next = entry[e + kAhead];
        Prefetch(gradients[next.feature] + next.index * d, d * sizeof(float));
      }
      if (!active[entry[e].feature]) continue;
      const float* __restrict from = gradients[entry[e].feature] + entry[e].index * d;
      float* __restrict to = sums + inverse[e] * d;
      for (size_t i = 0; i < d; ++i) to[i] += from[i];
      touched[inverse[e]] = 1;
    }
  });
}

namespace {

// Few enough for the digits of floats.
constexpr size_t kChunk = 4096;

float SumChunk(const float* __restrict values, size_t n) {
  constexpr size_t kLanes = 16;
  float lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float value = values[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (; i < n; ++i) lanes[0] += values[i] * values[i];
  float sum = 0;
  for (float lane : lanes) sum += lane;
  return sum;
}

}  // namespace

bool SumSquares(const float* values, size_t n, double* squares) {
  double sum = 0;
  for (size_t begin = 0; begin < n; begin += kChunk) {
    const size_t count = std::min(n - begin, kChunk);
    double of_chunk = SumChunk(values + begin, count);
    if (!std::isfinite(of_chunk)) {  // not finite, or too large for the square of a float
      of_chunk = 0;
      for (size_t i = begin; i < begin + count; ++i) of_chunk += static_cast<double>(values[i]) * values[i];
    }
    sum += of_chunk;
  }
  *squares = sum;
  return std::isfinite(sum);
}

}  // namespace het
