// Seconds of a clock that nobody sets: differences count, the value itself says nothing.
#pragma once

#include <chrono>

namespace het {

inline double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace het
