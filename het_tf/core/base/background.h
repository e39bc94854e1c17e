// A thread that runs a function again and again, and sleeps in between until a descriptor is ready, some time
// has passed, or somebody wakes it.
//
//   Wake ──► run() ──► Pause ──► poll ──► run() ──► Pause ──► ...
//
// The first Wake starts the thread. run is never called by two threads at once, and not while the process
// forks: a fork waits until run returns, so run must not wait for anything that a forking thread may hold.
// The child has the object without its thread; the first Wake there starts one.
#ifndef HET_TF_CORE_BASE_BACKGROUND_H_
#define HET_TF_CORE_BASE_BACKGROUND_H_

#include <poll.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace het {

// As long as one lives, the process does not fork: who forks waits. For work on threads of which a child
// would find half done what they hold. Not twice on one thread, and not while waiting for anything that a
// forking thread may hold.
class NoFork {
 public:
  NoFork();
  ~NoFork();
  NoFork(const NoFork&) = delete;
  NoFork& operator=(const NoFork&) = delete;
};

class Background {
 public:
  struct Pause {
    double seconds = -1;  // at most; negative: until Wake or a descriptor
    std::vector<pollfd> descriptors;
  };

  explicit Background(std::function<Pause()> run) : run_(std::move(run)) {}
  // Waits until run has returned.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Runs the function soon. Not to be called by two threads at once.
  void Wake();
  // Whether this process has the thread.
  bool started() const { return thread_ != nullptr; }

 private:
  friend struct BackgroundForks;

  void Start();
  void Loop();

  const std::function<Pause()> run_;
  std::mutex gate_;  // held while run runs
  std::atomic<bool> stop_{false};
  int event_ = -1;                 // an eventfd: wakes the thread
  std::thread* thread_ = nullptr;  // not owned by a child of fork, where it does not exist
};

}  // namespace het

#endif  // HET_TF_CORE_BASE_BACKGROUND_H_
