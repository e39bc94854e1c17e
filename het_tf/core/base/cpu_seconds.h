// CPU time of a thread, which does not depend on the machine's other load.
#pragma once

#include <time.h>

namespace het {

// Adds the time that this thread spends in a scope.
class CpuSeconds {
 public:
  explicit CpuSeconds(double* sum) : sum_(sum), begin_(Now()) {}
  ~CpuSeconds() { *sum_ += Now() - begin_; }
  CpuSeconds(const CpuSeconds&) = delete;
  CpuSeconds& operator=(const CpuSeconds&) = delete;

  // Of this thread so far.
  static double Now() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  }

 private:
  double* const sum_;
  const double begin_;
};

}  // namespace het
