#include "het_tf/core/cache/admission_filter.h"

#include <algorithm>

#include "het_tf/core/base/hash.h"

namespace het {

AdmissionFilter::AdmissionFilter(uint32_t admit_after, size_t capacity)
    : admit_after_(std::min<uint32_t>(admit_after, 255)),
      counts_(admit_after > 1 ? std::max<size_t>(64, 8 * capacity) : 0) {}

bool AdmissionFilter::Admit(uint64_t hash) {
  if (counts_.empty()) return true;
  // Two rows of the sketch in one array; the key's count is the smaller of its two.
  uint8_t& a = counts_[((hash >> 32) * counts_.size()) >> 32];
  uint8_t& b = counts_[((Mix64(hash) >> 32) * counts_.size()) >> 32];
  const uint8_t seen = std::min(a, b);
  if (a == seen && a < 255) ++a;
  if (&a != &b && b == seen && b < 255) ++b;
  // A quarter as many keys as cells between two ageings: with more, keys share cells and strangers are
  // admitted.
  if (++counted_ >= counts_.size() / 4) {
    for (uint8_t& count : counts_) count /= 2;
    counted_ = 0;
  }
  return seen + 1u >= admit_after_;
}

}  // namespace het
