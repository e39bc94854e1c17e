// Waiting for partitions, and telling people what for: which partition, where it is, why, and
// since when.
#pragma once

#include <functional>
#include <string>

#include "het_tf/core/client/client_config.h"
#include "het_tf/core/client/exchange.h"
#include "het_tf/core/client/push_durability.h"

namespace het {

class Waiter {
 public:
  // `progress` sends and handles what there is, waiting at most so many seconds for the first
  // event.
  Waiter(Transport* transport, const ClientConfig* config, Exchange* exchange, PushDurability* durability,
         std::function<void(double)> progress)
      : transport_(transport),
        config_(config),
        exchange_(exchange),
        durability_(durability),
        progress_(std::move(progress)) {}

  // Until done(). Fails when a partition refuses for good, and when nothing has moved on for
  // config.deadline: no frame was applied and no read answered. `what` waits ("a lookup");
  // `remedy` is said when it fails.
  Status Until(const std::function<bool()>& done, const char* what,
               const char* remedy = "Check the servers, or raise het_tf.init(deadline=...)");

  // Until the frames with numbers below `end` are applied.
  Status UntilApplied(uint64_t end, const char* what);
  // Until frames that are kept take no more than they may.
  Status UntilKeptFit();
  // Sends and handles what there is, without waiting.
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
