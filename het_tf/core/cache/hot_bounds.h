// Bounds of hot rows that follow the learning rate (CacheConfig::hot, hot="auto").
//
// What stale rows cost goes with learning rate x mean lag of the hot rows: at RowWiseAdagrad AUC lost at
// most 0.0005 up to a product of 0.7. The mean lag of N workers in step is about 0.3 ((N - 1) push +
// pull), and with pull = 4 push few rows travel for it. docs/concepts.md has the table.
#pragma once

#include <algorithm>
#include <cstdint>

namespace het {

struct HotBounds {
  int64_t pull;
  int64_t push;

  static HotBounds Of(double learning_rate, uint32_t workers) {
    constexpr double kProduct = 0.7;
    constexpr double kLagOfBounds = 0.3;
    constexpr int64_t kPullOfPush = 4;
    constexpr double kMost = 1 << 20;
    const double others = static_cast<double>(workers) - 1 + kPullOfPush;
    // A rate of 0, or none, moves no row.
    const double push = learning_rate > 0 ? kProduct / (learning_rate * kLagOfBounds * others) : kMost;
    const auto whole = static_cast<int64_t>(std::clamp(push, 1.0, kMost));
    return {kPullOfPush * whole, whole};
  }
};

}  // namespace het
