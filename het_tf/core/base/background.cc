#include "het_tf/core/base/background.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>

namespace het {

Background::~Background() {
  if (thread_ == nullptr) return;
  stop_.store(true);
  eventfd_write(event_, 1);
  thread_->join();
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
  event_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (event_ < 0) return;
  // This thread must not receive the process's signals.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::make_unique<std::thread>([this] { Loop(); });
  } catch (const std::exception&) {  // out of threads or memory: the next Wake tries again
    close(event_);
    event_ = -1;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Background::Loop() {
  Pause pause;
  while (!stop_.load()) {
    pause = run_();
    pause.descriptors.push_back({event_, POLLIN, 0});
    const int milliseconds =
        pause.seconds < 0 ? -1 : static_cast<int>(std::ceil(std::min(pause.seconds, 1e6) * 1000));
    if (poll(pause.descriptors.data(), pause.descriptors.size(), milliseconds) > 0 &&
        pause.descriptors.back().revents != 0) {
      uint64_t wakes = 0;
      static_cast<void>(eventfd_read(event_, &wakes));
    }
  }
}

}  // namespace het
