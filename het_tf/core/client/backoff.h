// Pauses after failures: doubled with each consecutive one, with a random factor from a half to one, so that
// clients that failed together do not return together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

namespace het {

struct BackoffConfig {
  double first = 0.01;  // seconds
  double most = 1;
};

class Backoff {
 public:
  // `jitter`: in [0, 1).
  void Failed(const BackoffConfig& config, double now, const std::string& reason, double jitter) {
    if (failures_ == 0) since_ = now;
    const double pause =
        std::min(config.most, config.first * static_cast<double>(1u << std::min<size_t>(failures_, 10)));
    ++failures_;
    not_before_ = now + pause * (0.5 + jitter / 2);
    reason_ = reason;
  }
  void Succeeded() {
    failures_ = 0;
    not_before_ = 0;
    reason_.clear();
  }

  bool failing() const { return failures_ > 0; }
  double not_before() const { return not_before_; }
  double since() const { return since_; }
  const std::string& reason() const { return reason_; }  // the last failure's

 private:
  size_t failures_ = 0;  // consecutive failures
  double since_ = 0;
  double not_before_ = 0;
  std::string reason_;
};

}  // namespace het
