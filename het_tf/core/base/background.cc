#include "het_tf/core/base/background.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <exception>
#include <set>

namespace het {

// Every Background that has a thread, and who is inside of a NoFork, for the handlers of fork. Never
// destroyed.
struct BackgroundForks {
  // Who wants to be inside of a NoFork comes through the turnstile, which a fork shuts before it waits until
  // nobody is. Inside somebody may start a Background: so all this is before the mutex. (A shared_mutex is
  // not free again in a child.)
  std::mutex turnstile;
  std::atomic<int> inside{0};
  std::mutex mutex;
  std::set<Background*> all;

  static BackgroundForks& Get() {
    static BackgroundForks* const forks = [] {
      pthread_atfork(Before, InParent, InChild);
      return new BackgroundForks();
    }();
    return *forks;
  }
  static void Before() {
    Get().turnstile.lock();
    while (Get().inside.load() != 0) std::this_thread::sleep_for(std::chrono::microseconds(20));
    Get().mutex.lock();
    for (Background* background : Get().all) background->gate_.lock();
  }
  static void InParent() {
    for (Background* background : Get().all) background->gate_.unlock();
    Get().mutex.unlock();
    Get().turnstile.unlock();
  }
  static void InChild() {
    for (Background* background : Get().all) {
      background->thread_ = nullptr;
      close(background->event_);  // the parent's thread hears what is written to it
      background->event_ = -1;
      background->gate_.unlock();
    }
    Get().all.clear();
    Get().mutex.unlock();
    Get().turnstile.unlock();
  }
};

NoFork::NoFork() {
  std::lock_guard<std::mutex> lock(BackgroundForks::Get().turnstile);
  BackgroundForks::Get().inside.fetch_add(1);
}

NoFork::~NoFork() { BackgroundForks::Get().inside.fetch_sub(1); }

Background::~Background() {
  if (thread_ == nullptr) return;
  {
    std::lock_guard<std::mutex> lock(BackgroundForks::Get().mutex);
    BackgroundForks::Get().all.erase(this);
  }
  stop_.store(true);
  eventfd_write(event_, 1);
  thread_->join();
  delete thread_;
  close(event_);
}

void Background::Wake() {
  if (thread_ == nullptr) {
    Start();
  } else {
    eventfd_write(event_, 1);
  }
}

void Background::Start() {
  BackgroundForks& forks = BackgroundForks::Get();
  std::lock_guard<std::mutex> lock(forks.mutex);
  event_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (event_ < 0) return;
  // Signals are for the threads that know what to do with them.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    forks.all.insert(this);
    std::atomic<bool> running{false};
    thread_ = new std::thread([this, &running] {
      running.store(true);
      Loop();
    });
    // A fork waits for the mutex: it never meets a thread that is being made.
    while (!running.load()) std::this_thread::yield();
  } catch (const std::exception&) {  // no threads left, or no memory: the next Wake tries again
    forks.all.erase(this);
    close(event_);
    event_ = -1;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Background::Loop() {
  const int event = event_;
  Pause pause;
  while (!stop_.load()) {
    {
      // The only place where the thread takes or frees memory: not every allocator (ASan's does not) is whole
      // in a child when a fork met another thread inside of it.
      std::lock_guard<std::mutex> lock(gate_);
      if (stop_.load()) return;
      pause = run_();
      pause.descriptors.push_back({event, POLLIN, 0});
    }
    const int milliseconds =
        pause.seconds < 0 ? -1 : static_cast<int>(std::ceil(std::min(pause.seconds, 1e6) * 1000));
    if (poll(pause.descriptors.data(), pause.descriptors.size(), milliseconds) > 0 &&
        pause.descriptors.back().revents != 0) {
      uint64_t wakes = 0;
      static_cast<void>(eventfd_read(event, &wakes));
    }
  }
}

}  // namespace het
