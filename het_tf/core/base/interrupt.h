// Ctrl-C (SIGINT) while a call waits for a server.
//
// Python notices a signal only when C code returns, and TensorFlow's ops run on other threads than Python's.
// So while calls may wait, SIGINT comes here first; a wait that stands still then ends with Code::kCancelled,
// and the handler from before gets the signal when the call has ended.
//
//   SIGINT ─► Interrupts ─► waits: Due() ─► kCancelled ─► ~Interrupts ─► the handler from before
//
// 1. A wait that moves on is not ended: a program whose own handler only takes a note, such as "stop after
//    this epoch", loses no step.
// 2. TensorFlow makes a Python exception of an op's error, and fails with an error of pybind11 if a signal
//    becomes a KeyboardInterrupt meanwhile. So after an op the signal waits for that exception (PassOn), but
//    at most kHoldSeconds.
// 3. Without a handler (SIG_DFL, SIG_IGN), and for handlers that want a siginfo_t, nothing is changed.
//
// 4. A signal is of all scopes that are open when it comes, and of those that open while it is held back. So
//    an op has one scope from its begin: a signal before its first wait, or between two of them, ends the
//    next one. A signal before the op is Python's, which handles it behind the op: press again.
//
// Thread-safe. A scope costs two system calls.
#pragma once

namespace het {

class Interrupts {
 public:
  static constexpr double kStillSeconds = 0.25;  // limit on a wait without progress after a signal
  static constexpr double kHoldSeconds = 3;  // for point 2; a graph on a busy machine takes longer than 0.3

  // How the call of this scope gets back to Python.
  enum class By { kFunction, kOp };

  // Within another scope of this thread, and for calls that wait for no server, it does nothing.
  explicit Interrupts(By by, bool may_wait = true);
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // Whether this thread's wait is to end, if it has stood still since `moved_at` (SteadySeconds).
  static bool Due(double moved_at);
  // From now on this thread's scope counts as interrupted: for calls at the exit of an interrupted program.
  static void Now();
  // Passes a signal on that is still held back. Returns whether there was one.
  static bool PassOn();

 private:
  const bool outermost_;
  const By by_;
};

}  // namespace het
