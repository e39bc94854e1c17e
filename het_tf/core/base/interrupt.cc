#include "het_tf/core/base/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>

#include "het_tf/core/base/steady_seconds.h"

namespace het {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// The handler uses atomics only.
std::atomic<int> scopes{0};
std::atomic<void (*)(int)> before{nullptr};  // the handler from before
std::atomic<double> signalled_at{-kNever};   // SteadySeconds of the last signal
std::atomic<uint64_t> signals{1};            // 1 more than have come
std::atomic<bool> held{false};               // a signal that the handler from before has not got
std::atomic<bool> passing{false};            // the next signal here is that one
bool installed = false;                      // guarded by HandlerMutex

std::mutex& HandlerMutex() {  // guards the installation; never destroyed: threads may outlive it
  static auto* const mutex = new std::mutex();
  return *mutex;
}

struct OfThread {
  bool scoped = false;
  uint64_t began = 0;      // `signals` that are not of this scope
  double now_at = kNever;  // of Now()
  bool ended_a_wait = false;
};
thread_local OfThread of_thread;

void OnSignal(int signal) {
  if (!passing.exchange(false) && scopes.load() > 0) {
    signalled_at.store(SteadySeconds());
    held.store(true);
    signals.fetch_add(1);
    return;
  }
  if (auto* const handler = before.load()) handler(signal);
}

void Install() {
  struct sigaction now {};
  if (sigaction(SIGINT, nullptr, &now) != 0 || (now.sa_flags & SA_SIGINFO) != 0) return;
  if (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN || now.sa_handler == OnSignal) return;
  before.store(now.sa_handler);
  now.sa_handler = OnSignal;
  installed = sigaction(SIGINT, &now, nullptr) == 0;
}

void Restore() {
  struct sigaction now {};
  if (sigaction(SIGINT, nullptr, &now) != 0 || now.sa_handler != OnSignal) return;  // another one came since
  now.sa_handler = before.load();
  sigaction(SIGINT, &now, nullptr);
  installed = false;
  passing.store(false);  // a signal on its way goes there by itself
}

}  // namespace

Interrupts::Interrupts(By by, bool may_wait) : outermost_(may_wait && !of_thread.scoped), by_(by) {
  if (!outermost_) return;
  const std::lock_guard<std::mutex> lock(HandlerMutex());
  if (scopes.fetch_add(1) == 0) Install();
  const uint64_t before_this = signals.load();  // one that comes now is held back, or counted later
  of_thread = {true, before_this - (held.load() ? 1 : 0)};
}

Interrupts::~Interrupts() {
  if (!outermost_) return;
  {
    const std::lock_guard<std::mutex> lock(HandlerMutex());
    if (scopes.fetch_sub(1) == 1) Restore();
  }
  const OfThread mine = of_thread;
  of_thread = OfThread();
  if (!held.load() || signals.load() <= mine.began) return;
  if (by_ == By::kOp && mine.ended_a_wait) {
    try {
      std::thread([signal = signals.load()] {
        std::this_thread::sleep_for(std::chrono::duration<double>(kHoldSeconds));
        if (signals.load() == signal) PassOn();  // a later signal has a later scope
      }).detach();
      return;
    } catch (const std::system_error&) {  // no thread: the signal is not lost
    }
  }
  PassOn();
}

bool Interrupts::Due(double moved_at) {
  OfThread& mine = of_thread;
  if (!mine.scoped) return false;
  const double since = std::min(mine.now_at, signals.load() > mine.began ? signalled_at.load() : kNever);
  const double now = SteadySeconds();
  const bool due = now - since >= kStillSeconds && now - moved_at >= kStillSeconds;
  mine.ended_a_wait = mine.ended_a_wait || due;
  return due;
}

void Interrupts::Now() { of_thread.now_at = SteadySeconds(); }

bool Interrupts::PassOn() {
  if (!held.exchange(false)) return false;
  const std::lock_guard<std::mutex> lock(HandlerMutex());
  passing.store(installed);
  kill(getpid(), SIGINT);  // a true signal: it also ends a sleep of Python's main thread
  return true;
}

}  // namespace het
