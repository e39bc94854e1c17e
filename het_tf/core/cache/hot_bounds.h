// Bounds of hot rows that follow the learning rate (CacheConfig::hot, hot="auto").
//
// What stale rows cost goes with learning rate x mean lag of the hot rows: at RowWiseAdagrad AUC lost at
// most 0.0005 up to a product of 0.25. The mean lag of N workers in step is about 0.3 ((N - 1) push +
// pull). A push is a small message and a pull is one of every worker: so pull is at least 8 push, and has
// what whole pushes leave. docs/concepts.md has the table.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace het {

struct HotBounds {
  int64_t pull;
  int64_t push;

  static HotBounds Of(double learning_rate, uint32_t workers) {
    constexpr double kProduct = 0.25;
    constexpr double kLagOfBounds = 0.3;
    constexpr double kPullOfPush = 8;
    constexpr double kMost = 1 << 20;
    const double others = static_cast<double>(workers) - 1;
    // (N - 1) push + pull. A rate of 0, or none, moves no row.
    const double most = kMost * (others + kPullOfPush);
    const double sum = learning_rate > 0 ? std::min(kProduct / (kLagOfBounds * learning_rate), most) : most;
    const double push = std::floor(sum / (others + kPullOfPush));
    return {static_cast<int64_t>(sum - others * push), static_cast<int64_t>(push)};
  }
};

}  // namespace het
