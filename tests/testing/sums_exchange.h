// The parts of summed gradients that the workers of a step send each other (core/plan/gradient_sums.h).
#pragma once

#include <numeric>
#include <utility>
#include <vector>

#include "het_tf/core/plan/gradient_sums.h"

namespace het::testing {

class SumsExchange {
 public:
  explicit SumsExchange(size_t workers) : sent_(workers), splits_(workers) {}

  // Worker w sends its sums, or its error.
  Status Send(size_t w, const GradientSums& sums, uint64_t signature, const Status& error = Status()) {
    return PackSums(error, sums, signature, static_cast<uint32_t>(sent_.size()), &sent_[w], &splits_[w]);
  }
  // What worker `to` gets: its part of every worker's, and the lengths of the parts.
  std::pair<Bytes, Vector<int32_t>> PartsOf(size_t to) const {
    std::pair<Bytes, Vector<int32_t>> parts;
    for (size_t from = 0; from < sent_.size(); ++from) {
      const int32_t* const splits = splits_[from].data();
      const auto begin = sent_[from].begin() + std::accumulate(splits, splits + to, std::ptrdiff_t{0});
      parts.first.insert(parts.first.end(), begin, begin + splits[to]);
      parts.second.push_back(splits[to]);
    }
    return parts;
  }
  Status Merge(size_t to, const SumsLayout& layout, MergedSums* merged) const {
    const auto [bytes, lengths] = PartsOf(to);
    return MergeSums(layout, bytes, lengths, merged);
  }

 private:
  std::vector<Bytes> sent_;
  std::vector<Vector<int32_t>> splits_;
};

}  // namespace het::testing
