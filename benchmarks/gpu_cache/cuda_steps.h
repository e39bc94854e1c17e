// Batches of steps, and steps over several tables, for cuda_cache.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "benchmarks/gpu_cache/cuda_table.h"

namespace het::bench {

// Ids, rows and gradients of some batches of a step, on the device.
class StepBatch {
 public:
  static constexpr int kTurns = 8;

  StepBatch(const Library& library, HetDevContext* context, uint32_t dim, uint32_t features,
            uint64_t ids_of_feature)
      : dim_(dim),
        features_(features),
        n_(ids_of_feature),
        rows_(library, context, features * n_ * dim * sizeof(float)),
        gradients_(library, context, features * n_ * dim * sizeof(float)) {
    gradients_.Put(std::vector<float>(features * n_ * dim, 0.01f));
  }

  // Zipf with exponent 1.05 over keys that are there: of one list for all features, or one for each. A share
  // of the ids is new keys of `table`.
  void Draw(const std::vector<const std::vector<int64_t>*>& resident, double new_ids, Table* table) {
    // Inversion of the continuous distribution with the same exponent; ranks are scattered over the ids.
    constexpr double kExponent = 1.05;
    std::uniform_real_distribution<double> uniform(0, 1);
    ids_.clear();
    for (uint64_t i = 0; i < kTurns * features_ * n_; ++i) {
      if (new_ids > 0 && uniform(random_) < new_ids) {
        ids_.push_back(table->NewKeys(1)[0]);
        continue;
      }
      const std::vector<int64_t>& keys = *resident[i / n_ % features_ % resident.size()];
      const double top = std::pow(static_cast<double>(keys.size()) + 1, 1 - kExponent) - 1;
      const double x = std::pow(1 + uniform(random_) * top, 1 / (1 - kExponent));
      ids_.push_back(keys[std::min<size_t>(keys.size() - 1, static_cast<size_t>(x - 1))]);
    }
  }

  std::vector<HetDevFeature> Features(int turn) const {
    std::vector<HetDevFeature> all;
    for (uint32_t f = 0; f < features_; ++f) {
      HetDevFeature feature = {};
      feature.n = n_;
      feature.ids = ids_.data() + (static_cast<uint64_t>(turn % kTurns) * features_ + f) * n_;
      feature.rows = rows_.as<float>() + f * n_ * dim_;
      feature.gradients = gradients_.as<float>() + f * n_ * dim_;
      all.push_back(feature);
    }
    return all;
  }

 private:
  const uint32_t dim_;
  const uint32_t features_;
  const uint64_t n_;
  std::vector<int64_t> ids_;
  Buffer rows_, gradients_;
  std::mt19937_64 random_{1};
};

// A call of several tables, all hits.
class SeveralTables {
 public:
  SeveralTables(const Library& library, HetDevContext* context, const std::vector<HetDevUse>& uses)
      : library_(library), context_(context), uses_(uses) {
    Must(library, library.CreateCall(context, &call_), "CreateCall");
  }
  ~SeveralTables() { library_.DestroyCall(context_, call_); }
  SeveralTables(const SeveralTables&) = delete;
  SeveralTables& operator=(const SeveralTables&) = delete;

  HetDevWanted Lookup(const std::vector<HetDevFeature>& features) {
    for (HetDevUse& use : uses_) use.pinned_from = ++use.stamp;
    const HetDevBatch batch = Batch(features);
    HetDevWanted wanted = {};
    Must(library_, library_.Lookup(context_, call_, &batch, true, nullptr, &wanted), "Lookup");
    return wanted;
  }
  void Apply(const std::vector<HetDevFeature>& features) {
    const HetDevBatch batch = Batch(features);
    HetDevWanted wanted = {};
    HetDevSummed summed = {};
    HetDevExport due = {};
    Must(library_, library_.Sum(context_, call_, &batch, 1, nullptr, nullptr, &wanted, &summed), "Sum");
    Must(library_, library_.Tick(context_, call_, &batch, nullptr, &due), "Tick");
  }
  void Reset() { library_.ResetCall(context_, call_); }

 private:
  HetDevBatch Batch(const std::vector<HetDevFeature>& features) const {
    return {uses_.data(), static_cast<uint32_t>(uses_.size()), features.data(),
            static_cast<uint32_t>(features.size())};
  }

  const Library& library_;
  HetDevContext* const context_;
  std::vector<HetDevUse> uses_;
  HetDevCall* call_ = nullptr;
};

}  // namespace het::bench
