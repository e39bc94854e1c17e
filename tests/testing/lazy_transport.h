// A network that delivers only when a call waits.
#pragma once

#include <deque>
#include <utility>
#include <vector>

#include "het_tf/core/store/local_transport.h"

namespace het::testing {

// Frames stay with the sender until it waits for an answer. A look at the clock takes kLook seconds.
class LazyTransport : public LocalTransport {
 public:
  using LocalTransport::LocalTransport;
  void Send(OutFrame frame) override { unsent_.push_back(std::move(frame)); }
  bool Poll(double seconds, std::vector<Event>* events) override {
    if (seconds <= 0) return false;
    for (; !unsent_.empty(); unsent_.pop_front()) LocalTransport::Send(std::move(unsent_.front()));
    return LocalTransport::Poll(seconds, events);
  }
  double Now() override { return now_ += kLook; }

 private:
  static constexpr double kLook = 1e-4;
  double now_ = 0;
  std::deque<OutFrame> unsent_;
};

}  // namespace het::testing
