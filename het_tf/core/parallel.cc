#include "het_tf/core/parallel.h"

namespace het {

ThreadPool::ThreadPool(size_t threads) {
  for (size_t i = 1; i < threads; ++i) workers_.emplace_back([this] { Work(); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Drain(const std::function<void(size_t)>& task, size_t tasks) {
  for (size_t i = next_.fetch_add(1); i < tasks; i = next_.fetch_add(1)) task(i);
}

void ThreadPool::For(size_t tasks, const std::function<void(size_t)>& task) {
  std::unique_lock<std::mutex> loop(loop_mutex_, std::defer_lock);
  if (tasks <= 1 || workers_.empty() || !loop.try_lock()) {
    for (size_t i = 0; i < tasks; ++i) task(i);
    return;
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    task_ = &task;
    tasks_ = tasks;
    next_.store(0);
    ++loop_;
  }
  wake_.notify_all();
  Drain(task, tasks);
  // Workers that have not woken up by now find no task left; task_ = null tells them so.
  std::unique_lock<std::mutex> lock(mutex_);
  task_ = nullptr;
  done_.wait(lock, [this] { return busy_ == 0; });
}

void ThreadPool::Work() {
  uint64_t seen = 0;
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stop_ || (loop_ != seen && task_ != nullptr); });
    if (stop_) return;
    seen = loop_;
    const std::function<void(size_t)>* task = task_;
    const size_t tasks = tasks_;
    ++busy_;
    lock.unlock();
    Drain(*task, tasks);
    lock.lock();
    if (--busy_ == 0) done_.notify_one();
  }
}

}  // namespace het
