// Waits for partitions, with notices that name the partition, its server, the reason and the time.
#pragma once

#include <functional>
#include <string>

#include "het_tf/core/client/client_config.h"
#include "het_tf/core/client/exchange.h"
#include "het_tf/core/client/push_durability.h"

namespace het {

class Waiter {
 public:
  // `progress` sends requests and handles replies, and waits at most its argument in seconds for the first
  // event.
  Waiter(Transport* transport, const ClientConfig* config, Exchange* exchange, PushDurability* durability,
         std::function<void(double)> progress)
      : transport_(transport),
        config_(config),
        exchange_(exchange),
        durability_(durability),
        progress_(std::move(progress)) {}

  // Waits until done(). Fails when a partition refuses for good, or without progress for config.deadline: no
  // frame applied, no read answered. Cancelled: Ctrl-C (base/interrupt.h). `what` is the waiting operation
  // ("a lookup"); `remedy` ends the error.
  Status Until(const std::function<bool()>& done, const char* what,
               const char* remedy = "Check the servers, or raise het_tf.Store(deadline=...)");

  // Waits until the frames with numbers below `end` are applied.
  Status UntilApplied(uint64_t end, const char* what);
  // Waits until kept frames are within their limit.
  Status UntilKeptFit();
  // Sends requests and handles replies, without waiting.
  void Progress() { progress_(0); }

 private:
  std::string WhatIsMissing(bool* out_of_memory) const;

  Transport* const transport_;
  const ClientConfig* const config_;
  Exchange* const exchange_;
  PushDurability* const durability_;
  const std::function<void(double)> progress_;
};

}  // namespace het
