// A row's clock with its class, as a reply says it.
#pragma once

#include <cstdint>

#include "het_tf/core/row/row_store.h"

namespace het {

// A row's clock at the store, and whether it is tight (hot, or not judged yet: store/row_classes.h). Both
// travel in one word.
class ClassedClock {
 public:
  ClassedClock(Clock clock = 0, bool tight = false)  // NOLINT: a clock of a table that has no classes
      : word_(static_cast<uint64_t>(clock) << 1 | static_cast<uint64_t>(tight)) {}
  static ClassedClock OfWord(uint64_t word) { return {static_cast<Clock>(word >> 1), (word & 1) != 0}; }
  uint64_t word() const { return word_; }
  operator Clock() const { return static_cast<Clock>(word_ >> 1); }  // NOLINT
  bool tight() const { return (word_ & 1) != 0; }

 private:
  uint64_t word_;
};

}  // namespace het
