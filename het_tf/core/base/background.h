// A thread that runs a function repeatedly, and sleeps in between until a descriptor is ready, a timeout
// passes, or Wake is called.
//
//   Wake ──► run() ──► Pause ──► poll ──► run() ──► Pause ──► ...
//
// The first Wake starts the thread, and only this thread calls run. A forked child does not have it
// (after_fork.h).
#pragma once

#include <poll.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace het {

class Background {
 public:
  struct Pause {
    double seconds = -1;  // timeout; negative: none
    std::vector<pollfd> descriptors;
  };

  explicit Background(std::function<Pause()> run) : run_(std::move(run)) {}
  // Waits until run has returned.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Runs the function soon. Not thread-safe.
  void Wake();
  bool started() const { return thread_ != nullptr; }

 private:
  void Start();
  void Loop();

  const std::function<Pause()> run_;
  std::atomic<bool> stop_{false};
  int event_ = -1;  // an eventfd: wakes the thread
  std::unique_ptr<std::thread> thread_;
};

}  // namespace het
