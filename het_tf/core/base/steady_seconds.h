// Seconds of a monotonic clock: only differences are meaningful.
#pragma once

#include <chrono>

namespace het {

inline double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace het
