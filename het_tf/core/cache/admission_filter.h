#pragma once

#include <cstdint>

#include "het_tf/core/base/alloc.h"

namespace het {

// Counts how often keys were asked for lately, in one byte a key or less: a count-min sketch that
// forgets.
class AdmissionFilter {
 public:
  AdmissionFilter(uint32_t admit_after, size_t capacity);
  // Counts one step in which `hash` occurred; true when it has now occurred often enough to be
  // cached.
  bool Admit(uint64_t hash);
  size_t bytes() const { return counts_.size(); }

 private:
  uint32_t admit_after_;
  size_t counted_ = 0;
  Vector<uint8_t> counts_;
};

}  // namespace het
