// Adds the CPU time that this thread spends in a scope.
#pragma once

#include <time.h>

namespace het {

class CpuSeconds {
 public:
  explicit CpuSeconds(double* sum) : sum_(sum), begin_(Now()) {}
  ~CpuSeconds() { *sum_ += Now() - begin_; }
  CpuSeconds(const CpuSeconds&) = delete;
  CpuSeconds& operator=(const CpuSeconds&) = delete;

 private:
  static double Now() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  }

  double* const sum_;
  const double begin_;
};

}  // namespace het
