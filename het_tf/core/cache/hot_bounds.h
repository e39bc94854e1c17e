// Bounds of hot rows that follow the learning rate (CacheConfig::hot, hot="auto").
//
// What stale rows cost goes with learning rate x lag of the hot rows. Of N workers in step the lag is about
// 0.3 (N - 1) push + pull / 2 ticks, and at RowWiseAdagrad AUC loses about a thousandth of the product: 0.33
// leaves some room below 0.0005. A push is a small message, and a pull is one of every worker: so pull is at
// least 8 push, and has what whole pushes leave. docs/concepts.md has the table.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace het {

struct HotBounds {
  int64_t pull;
  int64_t push;

  static HotBounds Of(double learning_rate, uint32_t workers) {
    constexpr double kProduct = 0.33;
    constexpr double kLagOfPull = 0.5;
    constexpr double kPullOfPush = 8;
    constexpr double kMost = 1 << 20;
    const double lag_of_push = 0.3 * (static_cast<double>(workers) - 1);
    // A rate of 0, or none, moves no row.
    const double most = kMost * (lag_of_push + kLagOfPull * kPullOfPush);
    const double lag = learning_rate > 0 ? std::min(kProduct / learning_rate, most) : most;
    const double push = Whole(lag / (lag_of_push + kLagOfPull * kPullOfPush));
    const double pull = Whole((lag - lag_of_push * push) / kLagOfPull);
    return {static_cast<int64_t>(pull), static_cast<int64_t>(push)};
  }

 private:
  // Rates are floats: what is whole but for their rounding is whole.
  static double Whole(double value) { return std::floor(value + 1e-3); }
};

}  // namespace het
