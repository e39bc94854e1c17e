// Bounds of hot rows that follow the learning rate (CacheConfig::hot, hot="auto").
//
// What stale rows cost goes with learning rate x lag of the hot rows. Of N workers in step the lag is about
// 0.3 (N - 1) push + pull / 2 ticks, and at RowWiseAdagrad AUC loses about a thousandth of the product: 0.33
// leaves some room below 0.0005. Of all bounds with this lag those are taken that cost the fewest rows: of a
// row that each worker ticks once a step, a worker pushes one every push + 1 steps, and pulls one every pull
// / (N - 1), since the others' ticks make its copy stale. A push bound below SyncPolicy::kEarlyPush is then
// given as one more: rows go out at it, as often as past the smaller one, and no step waits for them.
// docs/concepts.md has the table.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "het_tf/core/cache/sync_policy.h"

namespace het {

struct HotBounds {
  int64_t pull;
  int64_t push;

  // The rate that counts for rows of an optimizer. The loss was measured to go with the learning rate for
  // these two. With the others (measured: SGD, FTRL and Adam) it does not, and is larger: theirs are the
  // bounds of a high rate, whatever the rate is.
  static double RateOf(const std::string& optimizer, double learning_rate) {
    return optimizer == "row_wise_adagrad" || optimizer == "adagrad" ? learning_rate : 0.15;
  }
  static HotBounds Of(double learning_rate, uint32_t workers) {
    constexpr double kProduct = 0.33;
    constexpr double kLagOfPull = 0.5;
    constexpr double kMostLag = 1 << 20;
    const double others = workers > 1 ? workers - 1 : 1;
    const double lag_of_push = 0.3 * others;
    // A rate of 0, or none, moves no row.
    const double lag = learning_rate > 0 ? std::min(kProduct / learning_rate, kMostLag) : kMostLag;
    const auto pull_of = [&](double push) {
      return std::max(0.0, Whole((lag - lag_of_push * push) / kLagOfPull));
    };
    const auto rows_of = [&](double push) { return others / pull_of(push) + 1 / (push + 1); };
    // Where the derivative is 0: pull = others * sqrt(0.6) (push + 1).
    const double pull_of_one = kLagOfPull * others * std::sqrt(lag_of_push / others / kLagOfPull);
    const double least = std::max(0.0, std::floor((lag - pull_of_one) / (lag_of_push + pull_of_one)));
    const double push = rows_of(least + 1) < rows_of(least) ? least + 1 : least;
    const auto ticks = static_cast<int64_t>(push);
    return {static_cast<int64_t>(pull_of(push)), ticks < SyncPolicy::kEarlyPush ? ticks + 1 : ticks};
  }

 private:
  // Rates are floats: what is whole but for their rounding is whole.
  static double Whole(double value) { return std::floor(value + 1e-3); }
};

}  // namespace het
