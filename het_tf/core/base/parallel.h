// A small thread pool. Each thread has a share of a loop's tasks, the same in every loop of as many tasks, so
// that a task's output is in the caches of the core that reads it a loop or a step later. A thread that has
// finished its share steals tasks from the others: a worker that lost its core to another process delays one
// task, and not the whole loop, as a static split with a barrier would.
//
// A step is a few consecutive loops of some hundred microseconds, and waking a sleeping thread takes about a
// tenth of one. So a worker without tasks polls for the next loop for some twenty microseconds before it
// sleeps, and so does the caller for the workers' last tasks.
//
// Concurrency: one loop runs on the pool at a time. A second caller, or a nested loop, runs its tasks on its
// own thread instead of waiting. Tasks must not throw. A loop's state (task_, shares_) is written under
// mutex_ while no worker is busy; loop_ and busy_ change under it too, and are atomic for lock-free readers.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <new>
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

  // Calls task(i) once for every i < tasks and returns when all have ended.
  void For(size_t tasks, const std::function<void(size_t)>& task);

 private:
  // The rest of one thread's share, on its own cache line.
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
  std::atomic<size_t> busy_{0};    // workers running this loop's tasks
  std::atomic<uint64_t> loop_{0};  // number of the current loop
  std::atomic<bool> stop_{false};
  std::vector<Share> shares_;  // the caller's is the first
};

// The same for tasks that may throw std::bad_alloc, which is thrown here after running tasks have ended.
// Without a pool, or with one of one thread, runs them on this thread.
template <typename Task>
void ForEach(ThreadPool* pool, size_t tasks, const Task& task) {
  if (pool == nullptr || pool->threads() <= 1) {
    for (size_t i = 0; i < tasks; ++i) task(i);
    return;
  }
  std::atomic<bool> out_of_memory{false};
  pool->For(tasks, [&](size_t i) {
    try {
      task(i);
    } catch (const std::bad_alloc&) {
      out_of_memory.store(true);
    }
  });
  if (out_of_memory.load()) throw std::bad_alloc();
}

}  // namespace het
