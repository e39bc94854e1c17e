// A small thread pool. Each thread has its share of a loop's tasks, the same in every loop of as many tasks,
// so that what a task wrote is found in the caches of the core that reads it a loop or a step later. Whoever
// has finished his share takes tasks from the others': a worker that lost its core to another process delays
// one task and not the whole loop, as a static split with a barrier would.
//
// A step is a few loops of some hundred microseconds, one right after the other, and waking a sleeping thread
// takes about as long as a tenth of one: a worker that has finished looks for the next loop for some twenty
// microseconds before it sleeps, and so does the caller for the workers' last tasks.
//
// Concurrency: one loop runs on the pool at a time. A second caller, or a loop inside a loop, runs its tasks
// on its own thread instead of waiting. Tasks must not throw. What a loop is about (task_, shares_) is
// written under mutex_ while no worker is busy; loop_ and busy_ change under it too, and are atomic for those
// who only look.
#pragma once

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
  // What is left of one thread's share; on a cache line of its own.
  struct alignas(128) Share {
    std::atomic<size_t> next{0};
    size_t end = 0;
  };

  void Work(size_t self);
  void Drain(size_t self, const std::function<void(size_t)>& task);

  std::vector<std::thread> workers_;
  std::mutex loop_mutex_;  // held by the caller whose loop the workers are on

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  const std::function<void(size_t)>* task_ = nullptr;
  std::atomic<size_t> busy_{0};    // workers on this loop's tasks
  std::atomic<uint64_t> loop_{0};  // its number
  std::atomic<bool> stop_{false};
  std::vector<Share> shares_;  // the caller's first
};

}  // namespace het
