// Portable random numbers (std's distributions are not), and the scale of random tests.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "het_tf/core/base/hash.h"

namespace het::testing {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(Mix64(seed + 0x9e3779b97f4a7c15ULL)) {}
  uint64_t Next() { return Mix64(state_ += 0x9e3779b97f4a7c15ULL); }
  // In [0, n); 0 for n = 0.
  uint64_t Below(uint64_t n) { return n == 0 ? 0 : Next() % n; }
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Below(static_cast<uint64_t>(high - low) + 1));
  }
  double Unit() { return static_cast<double>(Next() >> 11) / static_cast<double>(uint64_t{1} << 53); }
  bool Chance(double probability) { return probability > 0 && Unit() < probability; }
  template <typename T>
  const T& Pick(const std::vector<T>& of) {
    return of[Below(of.size())];
  }

 private:
  uint64_t state_;
};

// A sanitizer plays a part of what the release build plays in full: it looks for errors of memory, not of
// numbers.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// `iterations` times the environment's HET_TEST_SCALE (default 1, less under a sanitizer), at least 1.
inline uint64_t Scaled(uint64_t iterations) {
#if defined(__SANITIZE_THREAD__)
  double factor = 0.02;
#elif defined(__SANITIZE_ADDRESS__)
  double factor = 0.1;
#else
  double factor = 1;
#endif
  if (const char* scale = std::getenv("HET_TEST_SCALE")) factor = std::atof(scale);
  return factor * static_cast<double>(iterations) < 1
             ? 1
             : static_cast<uint64_t>(factor * static_cast<double>(iterations));
}

}  // namespace het::testing
