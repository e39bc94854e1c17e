// Data that worker processes share in memory, beside the protocol, so that each can tell at any moment which
// ticks exist and check its reads against that.
//
// Rows are those of a counting table: "sgd", learning rate 1, every float kInitial at first, and the gradient
// of worker w has 1 in coordinate w. So coordinate v of any copy is the number of worker v's ticks in it. The
// last coordinate gets random integers, whose sum the conservation check uses.
//
//   begun[w][k]   ticks of key k that worker w has started: published before its Write
//   done[w][k]    ticks of ended steps: published after its Write has returned
#pragma once

#include <atomic>
#include <cstdio>
#include <iterator>
#include <string>

#include "het_tf/core/wire/reply.h"
#include "het_tf/core/wire/request.h"

namespace het::testing {

constexpr uint32_t kMostWorkers = 4;
constexpr Key kLedgerKeys = 24;      // keys are 0 .. kLedgerKeys - 1
constexpr float kLedgerInitial = 2;  // initial value of every float

struct Ledger {
  struct Ticks {
    std::atomic<int64_t> begun{0};
    std::atomic<int64_t> done{0};
    std::atomic<int64_t> sum{0};  // of the gradients' last coordinate
  };
  struct Worker {
    Ticks ticks[kLedgerKeys];
    std::atomic<uint64_t> steps{0};
    std::atomic<uint64_t> pushes{0};   // numbered frames
    std::atomic<uint64_t> resends{0};  // frames sent again
    std::atomic<uint64_t> lost{0};     // acknowledged by the server, lost by it, and no longer at the worker
    std::atomic<uint64_t> notices{0};  // messages to users about a wait
    std::atomic<bool> ready{false};
  };
  Worker workers[kMostWorkers];
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> held_back{0};  // rows with unsent ticks at the end of a step
  std::atomic<int> errors{0};
  std::atomic<uint32_t> error_texts_begun{0};
  char error_texts[8][512] = {};
  char notice[512] = {};

  void Error(const std::string& what) {
    // Count the text only when it is complete: a reader of the count may end this process at once.
    const uint32_t at = error_texts_begun.fetch_add(1);
    if (at < std::size(error_texts))
      std::snprintf(error_texts[at], sizeof(error_texts[at]), "%s", what.c_str());
    errors.fetch_add(1);
  }
  // Returns one of the first errors that count; "" if there are none.
  std::string FirstError() const {
    for (uint32_t at = 0; errors.load() > 0 && at < std::size(error_texts); ++at) {
      if (error_texts[at][0] != 0) return error_texts[at];
    }
    return "";
  }
  void Notice(uint32_t w, const std::string& text) {
    ++workers[w].notices;
    std::snprintf(notice, sizeof(notice), "%s", text.c_str());
  }
  uint64_t Sum(std::atomic<uint64_t> Worker::*counter) const {
    uint64_t sum = 0;
    for (const Worker& worker : workers) sum += (worker.*counter).load();
    return sum;
  }
};

}  // namespace het::testing
