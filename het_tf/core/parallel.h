// A small thread pool with dynamic chunks: whoever is free takes the next task, so a worker that lost its
// core to another process delays one task and not the whole loop, as a static split with a barrier would.
//
// Concurrency: one loop runs on the pool at a time. A second caller, or a loop inside a loop, runs its tasks
// on its own thread instead of waiting. Tasks must not throw.
#ifndef HET_TF_CORE_PARALLEL_H_
#define HET_TF_CORE_PARALLEL_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace het {

class ThreadPool {
 public:
  // `threads` counts the caller: 1 means no thread is started.
  explicit ThreadPool(size_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t threads() const { return workers_.size() + 1; }

  // Calls task(i) once for every i < tasks and returns when all are done.
  void For(size_t tasks, const std::function<void(size_t)>& task);

 private:
  void Work();
  void Drain(const std::function<void(size_t)>& task, size_t tasks);

  std::vector<std::thread> workers_;
  std::mutex loop_mutex_;  // held by the caller whose loop the workers are on

  std::mutex mutex_;  // guards what follows, but for next_
  std::condition_variable wake_;
  std::condition_variable done_;
  const std::function<void(size_t)>* task_ = nullptr;
  size_t tasks_ = 0;
  size_t busy_ = 0;
  uint64_t loop_ = 0;
  bool stop_ = false;

  std::atomic<size_t> next_{0};
};

}  // namespace het

#endif  // HET_TF_CORE_PARALLEL_H_
