// The clock of a test, its processes and its servers, which can be set.
//
//   TEST(Suite, Name) {
//     if (!TestClock::CanBeSet()) return TestClock::RunAgain("Suite.Name");
//     TestClock clock;
//     clock.Set(-3600);
#pragma once

#include <cstdint>

namespace het::testing {

class TestClock {
 public:
  // Whether this process has the library of clock/set_clock.cc.
  static bool CanBeSet();
  // Runs the test in a process that has it, and expects that it passes.
  static void RunAgain(const char* test);

  TestClock();
  ~TestClock();
  TestClock(const TestClock&) = delete;
  TestClock& operator=(const TestClock&) = delete;

  // From now on the time of day is the machine's and so many seconds.
  void Set(int64_t seconds);

 private:
  int64_t* offset_;
};

}  // namespace het::testing
