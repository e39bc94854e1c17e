// Seconds of a clock that nobody sets: differences count, the value itself says nothing.
#ifndef HET_TF_CORE_BASE_STEADY_SECONDS_H_
#define HET_TF_CORE_BASE_STEADY_SECONDS_H_

#include <chrono>

namespace het {

inline double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace het

#endif  // HET_TF_CORE_BASE_STEADY_SECONDS_H_
